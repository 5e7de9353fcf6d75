"""A world and what happens in it.

- ``base``: what every world has; ``single``: the world with one server
- ``runtime``: the virtual clock, the scheduler, processes and tasks
- ``network``: connections between processes and servers; ``node``: one server with its network and checks
- ``faults``: what may go wrong, and how often; ``nemesis``: makes it happen to processes and servers
- ``workload``: what the users do
"""
