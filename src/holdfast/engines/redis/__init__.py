"""The Redis engine: locks, read-write locks and semaphores on Redisson's wire format. On one server, behind Sentinel,
in a cluster, or (locks) on a majority.

Every operation is one Lua script, so each is one atomic step and one round trip. Read ``session.py`` first, then
``scripts/acquire.lua``. From the port down to the wire:

* ``url.py``, ``options.py``: what a URL and its options name, for all topologies; ``typed_options.py``: the options for
  type checkers; ``client_detection.py``: a client of redis-py given instead of a URL.
* ``engine.py``: one server: settings, guarantees, ``connect``.
* ``session.py``: one server for a client's callers (acquire, release, inspect, …).
* ``keeper.py``: one server for a client's watchdog (batches of renewals and withdrawals, hints about losses).
* ``attempt.py``: what is remembered about a claim between requests. ``modes.py``: which script serves it.
* ``waiting/``: the queue, and how waiters and the watchdog are notified.
* ``sentinel/``, ``cluster/``, ``redlock/``: the other topologies; each says only what differs.
* ``dialect/``: keys, and one encoder and decoder for each script. No I/O.
* ``scripts/``: the Lua scripts.
* ``connections/``: channels to a server (blocking, asyncio), opening them, groups of servers.
"""
