"""Completes what interrupted callers left undone.

A signal may end a caller between any two instructions: before it has vacated its slot in the local queue, or before it
has woken the waiter that has the slot now. That is repaired when a slot is found occupied, and by the watchdog. A
second signal may end the clean-up of the first: the watchdog finishes it.
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


def finish_interrupted(core: Core) -> None:
    """Finish the clean-up of calls that have ended in the middle of it. No I/O; called by the watchdog."""
    for acquisition in core.acquiring.interrupted():
        try:
            acquisition.finish()
        finally:  # once: a bug must not keep the watchdog busy
            core.acquisition_left(acquisition)
    for detachment in core.detaching.interrupted():
        try:
            detachment.withdraw()
        finally:
            core.detaching.end(detachment)
    for calls in (core.waiting, core.releasing):
        for hold in calls.interrupted():
            try:
                releasing.finish(core, hold)
            finally:
                calls.end(hold)


def _evict(core: Core, acquisition: Acquisition, key: str) -> LocalWaiter | None:
    acquisition.give_up_claim()
    return core.queue.vacate(key, acquisition)
