"""The runtimes: time, sleep, events and threads behind one port, so that the core is written once for sync and async.

Read ``base.py`` first: the port, and what its two kinds of signals, Event and Wakeup, are for.

* ``base.py``: the port; ``blocking.py``: threads; ``asyncio.py``: one event loop; ``asyncio_sleeps.py``: its sleeps
* ``clock.py``: the clock of all deadlines; ``callers.py``: which caller is running, for re-entrancy
* ``description.py``: the description of a caller, for ``inspect``
* ``threads.py``: starts background threads; ``loop_end.py``: closes a client before its event loop;
  ``exit_hooks.py``: what engines do at interpreter exit, after the core
"""
