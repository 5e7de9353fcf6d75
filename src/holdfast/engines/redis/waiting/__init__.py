"""How waiters and the watchdog are notified. Read ``contender.py`` first.

* ``contender.py``: an attempt in the engine's queue. ``direct_contender.py``: one that a release hands a lock over to.
  ``shared_contender.py``: one at a read-write lock or a semaphore.
* ``seats.py``: how an attempt joins the queue with the request that finds the lock busy, and where it is pushed to.
* ``watch.py``: how one waiter is woken: client tracking, Redisson's channel, or polling. ``blocking_watch.py`` and
  ``aio_watch.py`` add the connection for threads and for tasks.
* ``tracking.py``: the watchdog's tracking connection, which reports lost locks.
"""
