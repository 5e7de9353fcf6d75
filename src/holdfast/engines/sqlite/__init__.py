"""The embedded engine: one SQLite file, any number of processes of one user on one host.

Read ``operations.py`` first: what each operation of the port does to the file.

* ``url.py``: what a URL names; ``typed_options.py``: the options for type checkers. ``engine.py``: settings and
  guarantees. ``session.py`` and ``keeper.py``: the port's two sides; ``access.py``: their common base, which retries
  while other processes write. ``contender.py``: a waiting claim.
* ``shares.py``: read-write locks and semaphores, as ``operations.py`` is for plain locks; ``share_rows.py``: what is
  held of them. ``registers.py``, ``listener.py``: registers. ``durability.py``: user data that survives a power cut.
* ``store.py``: one lock file in one process: connection, identity, sockets. ``stores.py``: all stores of the process,
  and forks.
* ``statements.py``, ``share_statements.py``, ``register_statements.py``, ``schema.py``: SQL. ``verdict.py``:
  whether a row may be taken (pure). ``notes.py``: releases that are no transaction.
* ``liveness.py``: whether a process is alive, by flock. ``process_watch.py``: an immediate hint when it ends.
  ``wakeup_socket.py``: waking waiters and watchdogs of other processes. ``kernel.py``: the boot id.
* ``paths.py``, ``filesystem.py``: where the file is, and which places are refused. ``opening.py``, ``anchor.py``:
  creating, repairing, and detecting displaced files. ``housekeeping.py``: removing what is not needed any more.
  ``faults.py``: SQLite's and the system's errors in terms of the port.
"""
