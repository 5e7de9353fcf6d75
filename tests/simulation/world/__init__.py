"""A simulated world.

- ``base``: the base of every world; ``single``: the world with one server
- ``runtime``: the virtual clock, the scheduler, processes and tasks
- ``network``: connections between processes and servers; ``node``: one server with its network and checks
- ``faults``: which faults happen, and how often; ``nemesis``: injects them into processes and servers
- ``workload``: the calls of the users
"""
