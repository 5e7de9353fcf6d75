"""The rounds of a barrier at an engine where barriers are a kind of their own, shared with other programs.

There the members are claims on the barrier's name, and the engine knows which of them are there. A claim is granted
when no round is open. So a member that sees an open round is in it.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from holdfast._core import operators, releasing
from holdfast._core.core import Core
from holdfast._core.direct_acquire import acquire
from holdfast._core.policy import Policy
from holdfast.engines.base import Attempt, RequestFailed
from holdfast.engines.optional_sessions import BarrierSession, Gathering
from holdfast.engines.registers import Listener
from holdfast.errors import AcquireTimeout, EngineRefused, UsageError
from holdfast.lease import BaseLease

T = TypeVar("T")

#: A member looks at least this often, in seconds, also if it was not woken: a wake-up may be lost with a connection.
_LOOKS_EVERY: Final = (1.0, 2.0)


class EngineRounds:
    """A barrier as one member sees it."""

    def __init__(self, core: Core, policy: Policy) -> None:
        self._core = core
        self._policy = policy
        self._session = cast("BarrierSession[Any]", core.session)

    async def enter(self, lease: BaseLease, deadline: float | None) -> int | None:
        """The round that it has entered, with ``lease`` on its membership; None at ``deadline``."""
        core, parties = self._core, self._policy.mode.size
        left = None if deadline is None else max(0.0, deadline - core.front.now())
        try:
            await acquire(core, self._policy, left, lease)
        except AcquireTimeout:
            return None
        listener = await self._listener()
        try:
            while True:
                lease.check()
                attempt = lease._hold.grant.attempt
                state = await self._look(attempt)
                if state.present:  # else it was taken out, which the lease will say
                    if state.opened is not None:
                        return state.opened
                    self._agree(state)
                    if len(state.members) >= parties:
                        await self._open(attempt, state)
                        continue
                if not await self._sleep(listener, deadline):
                    # Opened at this very moment, it is a member that leaves at once.
                    await releasing.release(core, lease._hold, lease)
                    return None
        finally:
            listener.close()

    async def until_over(self, round_: int, deadline: float | None) -> bool:
        """Wait until all members of that round have left: True; False at ``deadline``."""
        listener = await self._listener()
        try:
            while True:
                state = await self._look()
                if state.opened != round_:
                    return True
                if not state.members:
                    await self._ask(lambda timeout: self._session.end_round(self._policy.key, timeout))
                elif not await self._sleep(listener, deadline):
                    return False
        finally:
            listener.close()

    def _agree(self, state: Gathering) -> None:
        name, parties = self._policy.name, self._policy.mode.size
        if state.parties not in (None, parties):
            raise UsageError(
                f"barrier {name!r} has {state.parties} parties in this round, and not {parties}: all members must "
                "agree",
                name=name,
            )

    async def _look(self, attempt: Attempt | None = None) -> Gathering:
        return await self._ask(lambda timeout: self._session.gathering(self._policy.key, attempt, timeout))

    async def _open(self, attempt: Attempt, state: Gathering) -> None:
        await self._ask(lambda timeout: self._session.open_round(attempt, state.members, timeout))

    async def _ask(self, question: Callable[[float], Awaitable[T]]) -> T:
        return await operators.ask(self._core, question, self._policy.name)

    async def _listener(self) -> Listener:
        listener = self._session.watch(self._policy.key)
        with suppress(RequestFailed, EngineRefused):  # it looks from time to time
            await listener.arm()
        return listener

    async def _sleep(self, listener: Listener, deadline: float | None) -> bool:
        """Wait for a change, for a look that is due, or for ``deadline``. Whether there is time left."""
        now = self._core.front.now()
        if deadline is not None and now >= deadline:
            return False
        until = now + random.uniform(*_LOOKS_EVERY)
        await listener.wait(until if deadline is None else min(until, deadline))
        return True
