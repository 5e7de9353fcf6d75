"""What an engine states about itself and about its locks: plain data, for people and for ``require=``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What an engine gives, as data. ``require={"fencing"}`` checks the bools.

    ``needs_clocks`` names the clocks that must run at the right rate; ``loss_bound`` says for how long a holder may
    still count the lock as its own after the engine has granted it to another client, and under which fault.

    ``shared``: read-write locks. ``permits``: semaphores. ``registers``: conditions, monitors, latches and barriers;
    ``state_bound`` says what may become of their state, and under which fault. ``detach``: a held lock can be handed to
    another process.
    """

    cross_process: bool
    cross_host: bool
    fair: bool
    fencing: bool
    survives_restart: bool
    survives_failover: bool
    needs_clocks: str
    loss_bound: str
    shared: bool = False
    permits: bool = False
    registers: bool = False
    detach: bool = False
    state_bound: str = ""


#: ``LockState.queue`` lists at most this many waiters; ``LockState.waiters`` counts them all.
MOST_WAITERS: Final = 100


@dataclass(frozen=True, slots=True)
class Holder:
    """One owner of a lock. Times are epoch seconds. What a foreign owner (another library's) does not record is None.

    ``thread``: the name of the thread that acquired it; of the task, on an async client. ``label``: the holder's own,
    from ``connect(label=…)``. ``token``: its fencing token; any token of its grant is accepted by ``break_``. If the
    holder's process has handed the lock from one of its callers to the next without asking the engine (it may for the
    first 10 ms of a grant), ``thread`` and, seen from another client, ``token`` are those of the first of them.
    ``count``: how many times the owner holds it at the engine. holdfast acquires once for all re-entrant handles, so
    it is 1; Redisson counts re-entries there. Of a semaphore: how many permits it has. ``mode``: ``"exclusive"``,
    ``"read"``, ``"write"`` or ``"permits"``. ``value``: of a candidate in an election, what it was given.
    """

    owner: str
    host: str | None = None
    pid: int | None = None
    thread: str | None = None
    program: str | None = None
    since: float | None = None
    until: float | None = None
    token: int | None = None
    count: int | None = None
    label: str | None = None
    mode: str = "exclusive"
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """One claim in the engine's queue for a lock. What the engine does not know of it is None.

    ``owner`` is the text that ``Holder.owner`` will be when the lock is granted to it, or a foreign waiter's own id.
    ``since``: when it joined the queue, in epoch seconds. ``thread``, ``label``, ``mode``, ``value``: as for a Holder.
    """

    owner: str
    host: str | None = None
    pid: int | None = None
    thread: str | None = None
    program: str | None = None
    label: str | None = None
    since: float | None = None
    mode: str = "exclusive"
    value: str | None = None


@dataclass(frozen=True, slots=True)
class LockState:
    """A lock as the engine saw it a moment ago: information for people, never a basis for exclusion.

    ``waiters`` counts those in the engine's queue; ``queue`` has the first 100 of them, in the order in which the
    engine would serve fair ones. Callers that wait inside a process, behind another caller of the same client, are
    known to that client only, and neither counted nor listed. ``token``: the largest fencing token that the engine has
    reserved for this name. ``remaining``: seconds until the lock expires if it is not renewed; None if it is free or
    does not expire by itself. ``kind``: ``"lock"``, ``"rwlock"``, ``"semaphore"`` or ``"election"``; a free name that
    the engine knows nothing about is a ``"lock"``. ``size`` and ``free``: of a semaphore, how many permits it has, and
    how many of them are not held; else None. ``conditions``: how many waiters each of the lock's conditions has, by
    name, as far as the engine can list them.
    """

    name: str
    holders: tuple[Holder, ...] = ()
    waiters: int = 0
    token: int | None = None
    remaining: float | None = None
    queue: tuple[Waiter, ...] = ()
    kind: str = "lock"
    size: int | None = None
    free: int | None = None
    conditions: Mapping[str, int] = field(default_factory=dict)
