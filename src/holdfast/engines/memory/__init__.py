"""The memory engine: one store per process, for tests and for programs of one process. ``memory:NAME`` is a separate
store.

It is an engine like any other (leases expire, tokens grow, locks can be broken), shared by the sync and async clients
of the process. A forked child starts with empty stores. It is the smallest engine: read ``session.py`` first.

* ``url.py``, ``typed_options.py``: what a URL and its options name. ``engine.py``: settings, guarantees, the stores.
* ``session.py`` and ``keeper.py``: the port's two sides; ``view.py``: their common base. ``contender.py``: a waiting
  claim.
* ``sharing.py``: what is held of a read-write lock or a semaphore; ``shared_names.py``: the operations on them.
* ``store.py``: the locks of one store. ``registers.py``: its registers.
"""
