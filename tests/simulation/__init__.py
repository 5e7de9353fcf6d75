"""Deterministic simulation: the shipped core and Redis engines in worlds whose faults are drawn from a seed.

The shipped code runs down to the channel, with the shipped Lua files in a real Lua interpreter. Time, the scheduler,
the network and the servers (one, or several for Redlock) are simulated. ``python -m tests.simulation`` runs seeds. A
seed that fails prints its trace and can be replayed exactly. Needs ``lupa``.

Read ``world/single.py`` first. The parts:

- ``world/``: a world and what happens in it (processes, network, faults, users)
- ``redis_model/``: the Redis server, compared with a real one by ``test_redis_model.py``
- ``client/``: the engine's channel on the simulated network
- ``checkers/``: the invariants I1–I13, after every step and at the end
- ``redlock/``: the same with several servers; ``sharing/``: read-write locks and semaphores;
  ``conditions/``: a bounded buffer; ``handing_over/``: from process to process; ``local/``: many callers in a process
- ``mutants.py``: deliberate bugs, each of which a seed must find
- ``runner.py``: runs seeds; ``determinism.py``: makes two runs of one seed equal
"""
