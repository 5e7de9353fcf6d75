"""A latch: callers wait until it was counted down to zero.

Its state is one register: the count, and the number of the *round*, which grows by one when the latch opens. A waiter
is through when the latch is open, or when the round in which it began to wait is over: so it does not miss that the
latch was opened and reset between two of its looks.

Every count_down and every reset leaves its mark: a *lane*, which one call of a client uses at a time, and the number of
the operation in that lane. A call whose reply was lost finds its number, and is not done twice. Marks older than two
rounds are dropped: an operation that is still unresolved then has an unknown outcome.

Here are the rules (pure), the steps that do I/O (written once), and the sync API. ``aio/latch.py`` has the async API.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self

from holdfast._config import names
from holdfast._config.durations import Duration, check_timeout
from holdfast._core.core import Core
from holdfast._runtime.blocking import run
from holdfast.base_client import BaseClient
from holdfast.client import Client
from holdfast.engines.registers import LATCH, RegisterKey
from holdfast.errors import OutcomeUnknown, UsageError
from holdfast.lease import NotPortable
from holdfast.primitives.shared_state import SharedState, check_registers

_log: Final = logging.getLogger("holdfast.latch")

#: The largest count of a latch.
MOST: Final = 1_000_000
#: How many rounds after its own a mark is kept.
_MARKS_LAST: Final = 2


# -- rules ---------------------------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """The last operation of one lane, and the round in which it was done."""

    number: int
    round: int


class LatchState(NamedTuple):
    """All that the engine knows about a latch. It is open if nothing is ``left``."""

    made: str  #: tells it from one of the same name whose state was lost: rounds are compared within one only
    round: int
    left: int  #: how often it is to be counted down
    size: int  #: the count to which a reset sets it
    marks: dict[str, Mark]  #: by lane

    @classmethod
    def new(cls, made: str, size: int) -> Self:
        return cls(made, 0, size, size, {})

    @classmethod
    def parsed(cls, value: Any) -> Self | None:
        """From JSON; None if it is no state of a latch."""
        try:
            made, round_, left, size, marks = value
            numbers = (round_, left, size)
            if not isinstance(made, str) or not all(type(number) is int and number >= 0 for number in numbers):
                return None
            return cls(made, *numbers, {str(lane): Mark(int(number), int(at)) for lane, (number, at) in marks.items()})
        except (ValueError, TypeError, AttributeError):
            return None

    @property
    def open(self) -> bool:
        return self.left == 0

    def has(self, lane: str, number: int) -> bool:
        """Whether the operation took effect."""
        return lane in self.marks and self.marks[lane].number >= number

    def counted_down(self, lane: str, number: int) -> Self:
        """After one count_down, which must not have taken effect yet. An open latch stays as it is."""
        if self.open:
            return self
        opens = self.left == 1
        # A mark of round r is there until round r + _MARKS_LAST is over.
        kept = {at: mark for at, mark in self.marks.items() if mark.round > self.round - _MARKS_LAST}
        return self._replace(
            round=self.round + opens,
            left=self.left - 1,
            marks={**(kept if opens else self.marks), lane: Mark(number, self.round)},
        )

    def reset(self, lane: str, number: int, size: int | None) -> Self:
        """Closed, with the whole count; waiters of the round go on waiting. It must not have taken effect yet."""
        size = self.size if size is None else size
        return self._replace(left=size, size=size, marks={**self.marks, lane: Mark(number, self.round)})


# -- steps that do I/O ---------------------------------------------------------------------------------------------


class Lanes:
    """The lanes of one latch object in one process. Each step is one atomic operation. An interrupted lane is not used
    again."""

    def __init__(self) -> None:
        self.process: Final = os.getpid()  #: a forked child must not use them: its marks would pass for its parent's
        self._client = secrets.token_urlsafe(8)
        self._numbers = itertools.count()
        self._idle: list[tuple[str, Iterator[int]]] = []

    @contextmanager
    def one(self) -> Iterator[tuple[str, int]]:
        """A lane of the caller's own, and the number of its next operation."""
        try:
            lane, operations = self._idle.pop()
        except IndexError:
            lane, operations = f"{self._client}.{next(self._numbers)}", itertools.count(1)
        yield lane, next(operations)
        self._idle.append((lane, operations))


class BaseLatch(NotPortable):
    """What sync and async latches share."""

    def __init__(self, client: BaseClient, name: str, count: int | None) -> None:
        check_registers(client, "latch", names.validate(name))
        if count is not None and (type(count) is not int or not 1 <= count <= MOST):
            raise UsageError(f"latch {name!r}: count is {count!r}; give a number from 1 to {MOST}, or None", name=name)
        self._name = name
        self._size = count
        self._key = RegisterKey(names.qualify(client._options.namespace, name), LATCH)
        client._engine.validate_name(self._key.name)
        self._lanes = Lanes()
        self._made = secrets.token_urlsafe(8)
        self._mismatch_logged = False

    @property
    def name(self) -> str:
        """The latch's name, without the namespace."""
        return self._name

    def _state_at(self, core: Core) -> SharedState:
        return SharedState(core, self._name, self._key)

    def _parse(self, shared: SharedState, value: Any) -> LatchState | None:
        """The state; a new one if there is none and this object may create it."""
        if value is None:
            return None if self._size is None else LatchState.new(self._made, self._size)
        state = LatchState.parsed(value)
        if state is None:
            raise shared.unreadable()
        if self._size not in (None, state.size) and not self._mismatch_logged:
            self._mismatch_logged = True
            _log.warning("latch %r was made with a count of %d, not of %d", self._name, state.size, self._size)
        return state

    def _made_if_missing(self, value: Any) -> LatchState | None:
        return LatchState.new(self._made, self._size) if value is None and self._size is not None else None

    def _needed(self, state: LatchState | None) -> LatchState:
        if state is None:
            raise UsageError(
                f"latch {self._name!r} does not exist, and without a count it is not made", name=self._name
            )
        return state

    async def _count_down(self, core: Core) -> None:
        await self._operate(core, "count_down", lambda state, lane, number: state.counted_down(lane, number))

    async def _reset(self, core: Core) -> None:
        # With a mark, too: a reset that is done again after a lost reply would undo what was counted since.
        await self._operate(core, "reset", lambda state, lane, number: state.reset(lane, number, self._size))

    async def _operate(self, core: Core, operation: str, change: Callable[[LatchState, str, int], LatchState]) -> None:
        """Change the state by one operation, exactly once."""
        shared = self._state_at(core)
        began: LatchState | None = None
        if self._lanes.process != os.getpid():
            self._lanes = Lanes()
        with self._lanes.one() as (lane, number):

            def changed(value: Any) -> LatchState | None:
                nonlocal began
                state = self._needed(self._parse(shared, value))
                if state.has(lane, number):
                    return None
                if began is not None and (state.made != began.made or state.round > began.round + _MARKS_LAST):
                    raise self._unknown(operation)
                if value is not None and began is None:
                    began = state  # from here on a swap without a reply may have left its mark there
                after = change(state, lane, number)
                return None if after == state else after

            await shared.change(changed)

    def _unknown(self, operation: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"latch {self._name!r}: the reply was lost, and it was opened and reset since; so it is not known whether "
            f"this {operation} took effect",
            operation=operation,
            name=self._name,
        )

    async def _count(self, core: Core) -> int | None:
        shared = self._state_at(core)
        state = self._parse(shared, await shared.read())
        return None if state is None else state.left

    async def _wait(self, core: Core, timeout: float | None) -> bool:
        shared = self._state_at(core)
        deadline = None if timeout is None else core.front.now() + timeout
        listener = shared.listener()
        try:
            await shared.arm(listener)
            # The first to come makes it: two waiters must agree on the round in which they began.
            began = self._parse(shared, await shared.change(self._made_if_missing))
            while True:
                state = self._parse(shared, await shared.read())
                if state is not None:
                    # One that was made since (it did not exist, or its state was lost) began with round 0.
                    round_ = began.round if began is not None and began.made == state.made else 0
                    if state.open or state.round > round_:
                        return True
                if not await shared.sleep(listener, deadline):
                    return False
        finally:
            listener.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"


class Latch(BaseLatch):
    """Callers wait until it was counted down to zero. Creating the object does no I/O; threads may share it."""

    def __init__(self, client: Client, name: str, count: int | None) -> None:
        super().__init__(client, name, count)
        self._client = client

    def count_down(self) -> None:
        """Count down by one; at zero the latch opens. Without effect on an open latch.

        It takes effect exactly once, also if a reply is lost. Raises EngineUnavailable, OutcomeUnknown if it is not
        known whether it took effect, UsageError if the latch does not exist and this object has no count.
        """
        run(self._count_down(self._client._open()))

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the latch opens: True; False after ``timeout`` seconds. An open latch stays open: True at once.

        A reset after the opening does not hold back callers that waited before.
        """
        return run(self._wait(self._client._open(), check_timeout(timeout)))

    def count(self) -> int | None:
        """How often it is still to be counted down; 0 if it is open, None if it does not exist."""
        return run(self._count(self._client._open()))

    def reset(self) -> None:
        """Close the latch again, with its whole count. Callers that wait for a round that is not over go on waiting."""
        run(self._reset(self._client._open()))
