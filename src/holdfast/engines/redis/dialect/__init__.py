"""What is sent to a Redis server and what comes back, as pure functions: no I/O, no clock.

Each script has exactly one encoder (its keys and arguments) and one decoder of its reply. One server, clusters, Redlock
and the simulation all use these. Read ``leases.py`` first.

* ``grants.py``: ``acquire``, ``raise``, ``join``.
* ``leases.py``: ``renew``, ``release``, and the plain command that looks at a lock.
* ``transfers.py``: ``transfer``.
* ``rwlocks.py``, ``permits.py``: all scripts of read-write locks and of semaphores, except those about waiters.
* ``waiters.py``: ``enqueue``, ``leave``.
* ``registers.py``: ``load``, ``store``, ``look``, ``peek``, ``swap``, and the plain commands of listeners.
* ``operators.py``: ``inspect``, ``held``, ``break``, ``ping``.
* ``metadata.py``: what the scripts store about holders and waiters, read back strictly.
* ``keys.py``: the keys of a lock, how many arguments ``acquire`` and ``release`` have, and which names are allowed.
* ``requests.py``: a script with keys and arguments as bytes; unchanging parts are packed once.
* ``packing.py``: words and durations as Redis wants them.
* ``replication.py``: ASKING and WAIT beside a request.
* ``replies.py``: what an error reply means.
* ``pushes.py``: what a push is about.
"""
