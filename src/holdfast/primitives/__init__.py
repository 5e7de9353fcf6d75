"""Synchronization primitives that are built on locks. One file each; its logic is written once, for sync and async.

* ``rwlock.py``, ``semaphore.py``: objects with several holders, which the engine grants
* ``condition.py``, ``monitor/``: waiting for a change of shared state; ``latch.py``, ``barrier.py``: for each other
* ``election.py``: leadership; ``multi.py``: several locks at once; ``detaching.py``: a held lock for another process
* ``aio/``: the async API of those with much of it

What they are made of: ``condition_queue.py`` decides about a condition's queue (pure), ``waiting.py`` is one wait,
``guarded_register.py`` a register under a hold; ``shared_state.py`` is a value that is changed by compare-and-swap.

The first two are modes of a claim (:class:`holdfast.engines.base.Mode`). Conditions, monitors, latches and barriers
keep their state in the engine's registers (:mod:`holdfast.engines.registers`). A client imports them on first use.
"""
