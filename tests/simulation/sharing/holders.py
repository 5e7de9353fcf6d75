"""The holders' side: what each process holds by its own clock, and whether waiters that could be served are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast._core.states import State
from holdfast.engines.base import READ, WRITE
from holdfast.engines.redis.attempt import RedisAttempt
from tests.simulation.checkers.history import Violation
from tests.simulation.checkers.holder_view import Attempt, HolderView, TrackedHold
from tests.simulation.sharing.permits_view import PermitsView
from tests.simulation.sharing.rwlock_view import RWLockView
from tests.simulation.sharing.view import ObjectView, SharingView

#: Without a fault nearby: how long room may be left unused. A waiter that was not woken looks after half a second.
_PROMPT = 0.05
#: If an entry before it was removed, or a push lost: only a client that tracks keys is woken by that.
_POLLED = 1.0
#: The same behind the entry of a waiter that is gone: it expires after 2 seconds.
_BEHIND_DEAD = 3.0
#: So long after the last fault a process has no request or pause left that one has caused.
_CALM = 2.5


class _Room(NamedTuple):
    since: float
    within: float


@dataclass
class SharingHolders(HolderView):
    """Checks I1 (readers or a writer; permits), I5 (tokens), and I6 (no waiter starves beside room)."""

    view: SharingView | None = None  #: of the only server
    _looked: int = 0
    _served_before: set[str] = field(default_factory=set)  # the waiters for which there was room before the last script
    _room: dict[str, _Room] = field(default_factory=dict)  # by waiter

    def check_token(self, tracked: TrackedHold, floor: int) -> None:
        mode = tracked.hold.policy.mode
        if mode is WRITE:
            super().check_token(tracked, floor)
        elif mode is READ and tracked.hold.token < floor:
            raise Violation("I5", f"{tracked}: a grant with the token {floor} was complete before this began")

    def check_exclusion(self, name: str, held: list[TrackedHold]) -> None:
        honest = [tracked for tracked in held if not self.forgotten(tracked.owner)]
        if not honest:
            return
        view = self._object(name)
        if isinstance(view, PermitsView):
            out = sum(tracked.hold.policy.mode.permits for tracked in honest)
            size = view.size()
            # If it was made smaller, those that are out stay out.
            if size is not None and out > max(size, sum(view.holders().values())):
                raise Violation("I1", f"{name}: {out} permits of {size} are held by " + _all(honest))
            return
        for writer in honest:
            if writer.hold.policy.mode is WRITE:
                for other in honest:
                    nested = other.hold.policy.mode is READ and other.hold.caller is writer.hold.caller
                    if other is not writer and not nested:
                        raise Violation("I1", f"{name} is written by one and held by others: " + _all(honest))

    def wanted(self) -> set[str]:
        """Not what was lost: others hold the object, too, and would keep it for the one that lost it."""
        lost = {each.owner for holders in self.live.values() for each in holders if each.hold.state is State.LOST}
        return super().wanted() - lost

    def _object(self, name: str) -> ObjectView:
        assert self.view is not None
        return self.view.objects[name]

    # -- progress ------------------------------------------------------------------------------------------------------

    def watch(self, view: SharingView) -> None:
        """Checks the waiters at the only server."""
        self.view, view.on_before = view, self._before_script

    def _before_script(self) -> None:
        """Also if a fault is near: room that is found after the script, and was there before it, is not its work."""
        self._served_before.clear()
        for name in self.view.names if self.view is not None else ():
            waiting = _queued(self._attempts(name))
            if waiting:
                live = [waiter for waiter in self._object(name).queue() if waiter in waiting]
                self._served_before.update(waiter for waiter, _ in self._served(name, live, waiting))

    def _attempts(self, name: str) -> list[Attempt]:
        return [attempt for attempt in self.waiting if attempt.name == name]

    def look(self, time: float) -> None:
        super().look(time)
        assert self.view is not None
        if self._looked != self.view.scripts:
            self._looked = self.view.scripts
            self._look_for_room(time)
        overdue = [waiter for waiter, room in self._room.items() if time - room.since > room.within]
        if overdue:
            self._look_for_room(time)  # a fault since then is an excuse
        for waiter in overdue:
            if waiter in self._room:
                raise Violation("I6", f"{waiter} could have been served since {self._room[waiter].since:.3f}")

    def _look_for_room(self, time: float) -> None:
        """Of each object whose waiters all live without a fault: which of them could be served."""
        found: dict[str, _Room] = {}
        for name in self.view.names if self.view is not None else ():
            attempts = self._attempts(name)
            waiting = _queued(attempts)
            if not waiting or not all(self._calm(attempt, time) for attempt in attempts):
                continue
            queue = self._object(name).queue()
            live = [waiter for waiter in queue if waiter in waiting]
            for waiter, prompt in self._served(name, live, waiting):
                known = self._room.get(waiter)
                ahead = queue[: queue.index(waiter)]
                made = prompt and waiter not in self._served_before and self._wakes(name)
                within = _PROMPT if made else _POLLED
                if any(each not in waiting for each in ahead):
                    within = _BEHIND_DEAD
                found[waiter] = _Room(time, within) if known is None else known
        self._room = found

    def _wakes(self, name: str) -> bool:
        """Whether the last script wakes a waiter for which it has made room, by whatever means. If it was for another
        object, the room has come by an expiry or a fault. (Room that was there before has come so, or because a
        conflicting waiter has left: of that, too, only a client that tracks keys is notified.)

        Not the acquire of a read-write lock: it makes no room. If there is some after it, an earlier hold has expired,
        of which only a client that tracks keys is notified.
        """
        assert self.view is not None
        assert self.view.last is not None
        script, keys, _, reply = self.view.last
        served = script in ("permits_acquire", "permits_resize") or (script.endswith("_release") and reply == 1)
        return name in keys and served and not self.faults.counts["lose_push"]

    def _calm(self, attempt: Attempt, time: float) -> bool:
        process = attempt.process
        quiet_since = max(self.faults.disturbed(process), process.resumed)
        return not process.paused and time - quiet_since > _CALM

    def _served(self, name: str, queue: list[str], waiting: dict[str, Attempt]) -> list[tuple[str, bool]]:
        """Those of the live waiters that would be granted (True), or refused for ever (False), if they asked now."""
        view = self._object(name)
        if isinstance(view, PermitsView):
            free, size = view.free(), view.size()
            if not queue or free is None or size is None:
                return []
            claimed = waiting[queue[0]].claimed
            assert isinstance(claimed, RedisAttempt)
            wanted = claimed.claim.mode.permits
            return [(queue[0], wanted <= free)] if wanted <= free or wanted > size else []
        assert isinstance(view, RWLockView)
        held = set(view.holders().values())
        if not held and queue and not queue[0].startswith("r"):
            return [(queue[0], True)]
        served: list[tuple[str, bool]] = []
        for waiter in queue if "write" not in held else ():
            if not waiter.startswith("r"):
                break
            served.append((waiter, True))
        return served


def _queued(attempts: list[Attempt]) -> dict[str, Attempt]:
    """Those that are in the queue, or are about to join it, by waiter."""
    return {
        waiter: attempt
        for attempt in attempts
        if isinstance(attempt.claimed, RedisAttempt) and (waiter := attempt.claimed.waiter) is not None
    }


def _all(held: list[TrackedHold]) -> str:
    return " and by ".join(f"{each} ({each.hold.policy.mode.label})" for each in held)
