"""One request for all sleeping waiters of a client: how they stand in the queue of a register.

A sleeping waiter is due to look about once a second. One that is due looks for all local waiters of the same register:
so a thousand waiters cost one request a second.

Presence proves that the waiter itself runs, and not only its process. A waiter that ends, also cancelled or
interrupted, leaves. What is left to be shown differs:

* Threads: one may hang alone, such as in a signal handler that does not return. Each wakes up often, which is its sign
  of life. The first one that is due looks for all that have shown one lately; they find their answer when they wake up.
* Tasks of one loop run or hang together: that one of them looks proves that all run. So one of them, the *leader*,
  wakes up once a second. It calls another one only if that has something to do: its look says more than that it waits
  on, its hold has ended, or a look has failed, after which each looks for itself, with a time-out of its own. A leader
  that leaves makes another one the leader.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from holdfast._core import states
from holdfast._core.states import Life
from holdfast._runtime.base import Event, Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import Look, RegisterKey, RegisterListener, Registers, Standing

#: A look is due after one to one and a quarter times this many seconds.
_LOOK: Final = 1.0
#: How long after its last sign of life the others look for a thread, in seconds. It adds to PRESENCE.
ALIVE: Final = 0.75
#: Upper bound of one sleep of a thread, in seconds: its return is a sign of life.
_LONGEST_SLEEP: Final = 0.5
#: A task that does not lead wakes up, too: if a signal came when the leader left, there is none, and the first one that
#: wakes up leads. Each sleeps for about this long at most (s); of many, for so much longer that no more wake up in all
#: than one in so many seconds.
_LONGEST_TASK_SLEEP: Final = 2.5
_BETWEEN_TASKS: Final = 0.03

_NOT_QUEUED: Final = Look(Standing.NOT_QUEUED)
_NEVER: Final = float("inf")


class Answer(NamedTuple):
    """How a waiter stands, by a request that was sent at ``asked``."""

    asked: float
    look: Look


class Sleeper:
    """One waiter. It sets ``alive`` to the time whenever it wakes up. Any waiter may set ``answer``, in one step."""

    __slots__ = ("_listener", "alive", "answer", "called", "due", "hold", "looks_itself", "waiter")

    def __init__(self, waiter: str, hold: Life, listener: RegisterListener, now: float) -> None:
        self.waiter = waiter
        self.hold = hold
        # Weak: a task whose event loop was closed gives up its lock when it is garbage. Nothing may keep it alive.
        self._listener = weakref.ref(listener)
        self.alive = now
        self.answer = Answer(-_NEVER, _NOT_QUEUED)
        self.due = _next_look(now)  #: when it is to look, if that is not left to another one
        self.looks_itself = False  #: a task for which the leader could not look
        self.called = False  #: another task has ended its sleep

    def looked(self, asked: float) -> None:
        self.due = _next_look(asked)

    @property
    def is_over(self) -> bool:
        """Its wait has ended. If a signal came when it left, it is still known."""
        return self._listener() is None

    def call(self) -> None:
        """A task."""
        self.called = True
        listener = self._listener()
        if listener is not None:
            listener.end_wait()

    def was_called(self) -> bool:
        called, self.called = self.called, False
        return called


class _Round:
    """One request for several waiters."""

    __slots__ = ("done", "failure", "sleepers", "started")

    def __init__(self, sleepers: dict[Sleeper, None], started: float, done: Event) -> None:
        self.sleepers = sleepers
        self.started = started
        self.done = done
        self.failure: RequestFailed | None = None


class SharedLooks:
    """The sleeping waiters of one client. Thread-safe: each step is one operation on a dict, or one attribute."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._sleepers: dict[RegisterKey, dict[str, Sleeper]] = {}
        self._leaders: dict[RegisterKey, Sleeper] = {}  # of tasks
        self._rounds: dict[RegisterKey, _Round] = {}  # those that are under way

    @contextmanager
    def sleeping(self, key: RegisterKey, waiter: str, hold: Life, listener: RegisterListener) -> Iterator[Sleeper]:
        """While it sleeps on ``listener``, the others look for it."""
        sleeper = Sleeper(waiter, hold, listener, self._runtime.now())
        try:
            self._sleepers.setdefault(key, {})[waiter] = sleeper
            yield sleeper
        finally:
            self._replace_leader(key, sleeper)
            sleepers = self._sleepers.get(key, {})
            sleepers.pop(waiter, None)
            if not sleepers:
                # A waiter that comes at this moment may be dropped with it: it looks for itself then.
                self._sleepers.pop(key, None)

    def wake_at(self, key: RegisterKey, me: Sleeper, now: float) -> float:
        """How long a waiter may sleep: until it is to look, or for some time."""
        if self._runtime.callers_hang_alone:
            return min(me.due, now + _LONGEST_SLEEP)
        if self._must_look(key, me):
            return me.due
        sleepers = len(self._sleepers.get(key, ()))
        return now + max(_LONGEST_TASK_SLEEP, sleepers * _BETWEEN_TASKS) * random.uniform(0.75, 1.25)

    def is_due(self, key: RegisterKey, me: Sleeper, now: float) -> bool:
        return now >= me.due and (self._runtime.callers_hang_alone or self._must_look(key, me))

    def _must_look(self, key: RegisterKey, me: Sleeper) -> bool:
        leader = self._leaders.setdefault(key, me)
        if leader is not me and (leader.is_over or self._sleepers.get(key, {}).get(leader.waiter) is not leader):
            self._leaders[key] = leader = me  # that one was interrupted when it left
        return leader is me or me.looks_itself

    def _replace_leader(self, key: RegisterKey, me: Sleeper) -> None:
        if self._leaders.get(key) is not me:
            return
        # By the last one that came: it is notified last.
        others = (each for each in reversed(self._sleepers.get(key, {}).values()) if each is not me)
        following = next(others, None)
        if following is None:
            self._leaders.pop(key, None)
        else:
            self._leaders[key] = following
            following.due = max(following.due, _next_look(following.answer.asked))
            following.call()

    def failed(self, key: RegisterKey) -> None:
        """A look was not answered. Each task finds out for itself for how long that goes on."""
        if not self._runtime.callers_hang_alone:
            now = self._runtime.now()
            for each in list(self._sleepers.get(key, {}).values()):
                if not each.looks_itself:
                    each.looks_itself, each.due = True, now
                    each.call()

    async def look(self, registers: Registers, key: RegisterKey, me: Sleeper, since: float, timeout: float) -> Answer:
        """An answer that was asked for after ``since``: by this waiter, or by another one, whose failure is then that
        of this one, too. Raises RequestFailed."""
        while True:
            me.alive = now = self._runtime.now()
            if me.answer.asked > since:
                return me.answer
            under_way = self._rounds.get(key)
            # One that asks for the others may be interrupted, or hang, at any step: they wait for a while only.
            if under_way is None or me not in under_way.sleepers or now >= under_way.started + timeout:
                return await self._ask(registers, key, me, timeout)
            await under_way.done.wait(under_way.started + timeout)
            failure = under_way.failure
            if failure is not None:
                raise RequestFailed(str(failure), may_have_happened=failure.may_have_happened) from failure

    def _runs(self, sleeper: Sleeper, now: float) -> bool:
        return now <= sleeper.alive + ALIVE if self._runtime.callers_hang_alone else not sleeper.is_over

    async def _ask(self, registers: Registers, key: RegisterKey, me: Sleeper, timeout: float) -> Answer:
        now = self._runtime.now()
        others = list(self._sleepers.get(key, {}).values())
        asking = dict.fromkeys([me, *(each for each in others if self._runs(each, now))])
        this = _Round(asking, now, self._runtime.event())
        try:
            self._rounds[key] = this
            looks = await registers.look_all(key, [each.waiter for each in asking], timeout)
            for each in asking:
                before, each.answer = each.answer, Answer(now, looks.get(each.waiter, _NOT_QUEUED))
                each.looks_itself = False
                if each is not me and not self._runtime.callers_hang_alone and _has_to_act(each, before):
                    each.call()
            return me.answer
        except RequestFailed as failure:
            this.failure = failure
            self.failed(key)
            raise
        finally:
            if self._rounds.get(key) is this:
                self._rounds.pop(key, None)
            this.done.set()


def _has_to_act(sleeper: Sleeper, before: Answer) -> bool:
    """Whether a task has to know its answer. It counts those in a row that have reported an orphan."""
    look = sleeper.answer.look
    if sleeper.hold.state is not states.PARKED or look.standing is not Standing.WAITING:
        return True
    return look.orphan or before.look.orphan


def _next_look(last: float) -> float:
    return last + _LOOK * (1 + random.random() / 4)
