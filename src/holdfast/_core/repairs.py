"""Completes what interrupted callers left undone in the local queue.

A signal may end a caller between any two instructions: before it has vacated its slot, or before it has woken the
waiter that has the slot now. Called when a slot is found occupied, and by the watchdog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core import releasing
from holdfast._core.acquisition import Acquisition
from holdfast._core.hold import Hold
from holdfast._core.local_queue import LocalWaiter

if TYPE_CHECKING:
    from holdfast._core.core import Core


def repair_slot(core: Core, key: str) -> None:
    """Give a name's local slot to the next waiter if its occupant is gone, and notify one whose turn has come."""
    waiter: LocalWaiter | None = None
    with core.lock:
        occupant = core.queue.occupant(key)
        if isinstance(occupant, Acquisition):
            if occupant not in core.acquiring:
                waiter = _evict(core, occupant, key)
            elif (waiter := occupant.waiter) is not None:
                core.queue.repair(key, waiter)
        elif isinstance(occupant, Hold) and releasing.is_over(core, occupant):
            releasing.abandon(core, occupant)
    if waiter is not None:
        waiter.event.set()


def repair_slots(core: Core) -> bool:
    """The same for every name that local callers wait for. No I/O. Whether there are any."""
    with core.lock:
        waiting = [acquisition for acquisition in core.acquiring.all() if acquisition.waiter is not None]
        keys = core.queue.contended()
    for key in keys:
        core.repair_slot(key)
    for acquisition in waiting:
        acquisition.notify_again()
    return bool(waiting)


def _evict(core: Core, acquisition: Acquisition, key: str) -> LocalWaiter | None:
    if acquisition.inherited is not None:
        core.pass_on(acquisition.inherited, acquisition)
    else:
        acquisition.withdraw()
    return core.queue.vacate(key, acquisition)
