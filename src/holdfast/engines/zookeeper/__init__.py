"""Locks on ZooKeeper, in the format of Apache Curator: each contender is a node, and one that no conflicting node
precedes holds the lock.

Read ``session.py`` first, then ``queue.py`` and ``layout.py``.

* ``url.py``, ``options.py``, ``target.py``: what a URL and its options name; ``typed_options.py``: the options for type
  checkers. ``engine.py``: settings and guarantees.
* ``session.py`` and ``keeper.py``: the port's two sides; ``member.py``: their common base. ``contender.py``,
  ``obstacles.py``: waiting for what stands before a claim. ``lock_watch.py``: watching a lock without a claim.
* ``queue.py``, ``place.py``: joining, reading and leaving a queue; a claim's node in it. ``nesting.py``: a read inside
  a write. ``semaphore.py``: permits, which are taken in exchange for that node; ``permits.py``: counting them (pure).
  ``rounds.py``: the members and rounds of a barrier.
* ``layout.py``, ``order.py``, ``names.py``, ``metadata.py``: Curator's layouts, order, names and node data (pure).
* ``registers.py``: registers. ``register_layout.py``: their nodes (pure); ``register_reading.py``,
  ``register_listener.py``, ``register_removal.py``: reading one, waiting for a change, removing unused ones.
  ``presences.py``: the waiters that are present.
* ``hub.py``: the ZooKeeper sessions of one client and the places in them. ``timeouts.py``: which ttl uses which
  session. ``heartbeat.py``: from when the leader counts a session's timeout (pure).
* ``renewal.py``, ``withdrawal.py``: batches of the watchdog. ``leftovers.py``: nodes to be removed later.
  ``operators.py``: inspect, list, break.
* ``connection.py``, ``handler.py``: one session over kazoo. ``requests.py``, ``reply.py``, ``watches.py``: sending,
  answers, watches. ``failures.py``: kazoo's errors in terms of the port.
"""
