"""Deterministic simulation: the shipped core and Redis engines in a world where everything goes wrong, by seed.

The code that runs is the real one down to the channel, with the shipped Lua files in a real Lua. Simulated are time,
the scheduler, the network and the servers: one, or several for Redlock. ``python -m tests.simulation`` runs seeds; one
that fails prints its trace and can be replayed exactly. Needs ``lupa``.

Read ``world/single.py`` first. Where to find what:

- ``world/``: a world and what happens in it (processes, network, faults, users)
- ``redis_model/``: the Redis server, compared with a real one by ``test_redis_model.py``
- ``client/``: the engine's channel on the simulated network
- ``checkers/``: the invariants I1–I13, after every step and at the end
- ``redlock/``: the same with several servers
- ``mutants.py``: faults built in on purpose, each of which a seed must find
- ``runner.py``, ``determinism.py``: run seeds, and what makes two runs of one seed equal
"""
