"""The engines, and the port through which the core uses them.

Read ``base.py`` first: the port. An engine is one folder, or one module if it is small. A new engine is a new folder, a
row in the registry, and its options in ``connect_options.py``. All steps are in ``docs/how-to/write-an-engine.md``.

* ``base.py``: the port: Engine, Session, Keeper, Contender, claims, attempts and answers
* ``optional_sessions.py``: the parts of the port that only some primitives need
* ``state.py``: what an engine states about itself and its locks: Guarantees, LockState, Holder, Waiter
* ``registers.py``: the part of the port for guarded values
* ``clock_margin.py``, ``descriptions.py``: what core and engines, or all engines, share
* ``registry.py``: which URL scheme is which engine
* ``memory/``, ``sqlite/``, ``redis/``, ``zookeeper/``: the engines
"""
