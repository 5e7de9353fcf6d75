"""The store that ends a critical section is left to the release of its lock: then one request does both.

A store that is refused releases nothing by itself. Then the lock is released alone, whose answer tells what became of
it. If the reply is lost, the request is repeated until the lease has run out. The engine recognises a repeat, also if
others have held the lock since; where it cannot, the outcome is unknown.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import cast

from holdfast._core import releasing, retry
from holdfast._core.giving_back import give_back
from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.registers import FusedRegisters, Stale
from holdfast.errors import EngineRefused, LockError
from holdfast.primitives.guarded_register import GuardedRegister


def defer(register: GuardedRegister, value: bytes | None) -> bool:
    """Have the release of the lock store ``value``, if it is given, and the queue. False if it cannot: store it now.

    The caller is about to release its lease.
    """
    if not register.registers.fused or not _ends_at_engine(register):
        return False
    register.defer(DeferredStore(register, value))
    return True


def _ends_at_engine(register: GuardedRegister) -> bool:
    """Whether one plain request will release the lock, and the next caller of this client waits for its answer: only
    holders of other clients leave a trace of those before them."""
    core, hold = register.core, register.hold
    policy = hold.policy
    if policy.at_engine or policy.replicas or len(hold.handles) != 1:
        return False
    with core.lock:
        if core.queue.occupant(policy.key) is not hold:
            return False
        return core.queue.next_holder(hold.grant, hold, core.front.now()) is None


class DeferredStore:
    """See :class:`holdfast._core.hold.Deferred`."""

    def __init__(self, register: GuardedRegister, value: bytes | None) -> None:
        self._register = register
        self._written = register.written(value)
        self._may_be_stored = False

    async def make(self) -> None:
        await self._register.store(self._written)
        self._register.undefer()  # not before: if it fails, the release tries again

    async def release(self) -> None:
        core, hold = self._register.core, self._register.hold
        try:
            answer = await retry.until_answered(
                core.front, self._request, hold.grant.deadline, self._give_up, random.random
            )
        except EngineRefused:
            with suppress(LockError):
                await releasing.release_at_engine(core, hold)
            raise
        if isinstance(answer, Stale):
            await self._refuse(answer)
        elif answer is None:
            await releasing.release_at_engine(core, hold)
        else:
            reason = None if answer is Found.OURS else hold.grant.why_lost(answer, core.front.now())
            releasing.ended(core, hold, reason)
            if reason is not None:
                raise hold.loss(reason)

    async def _refuse(self, stale: Stale) -> None:
        """Nothing was released. A later holder was here, or else the engine's counter of tokens was reset."""
        core, hold = self._register.core, self._register.hold
        reason = await give_back(core, hold)
        releasing.ended(core, hold, reason)
        loss = None if reason is None else hold.loss(reason)
        if self._may_be_stored:
            # An earlier transmission may have taken effect before a later holder came.
            raise self._register.unknown(str(loss or "another holder has written it")) from loss
        raise loss or self._register.written_under(stale)

    async def _request(self) -> Found | Stale | None:
        register, written = self._register, self._written
        attempt = register.hold.grant.attempt
        registers = cast("FusedRegisters", register.registers)
        try:
            return await registers.store_and_release(
                attempt,
                register.key,
                written.guard,
                written.version,
                register.hold.policy.request_timeout,
                value=written.value,
                queue=written.queue,
                wake=written.wake,
            )
        except RequestFailed as failure:
            attempt.unresolved |= failure.may_have_happened
            self._may_be_stored |= failure.may_have_happened
            raise

    def _give_up(self, failure: RequestFailed) -> Exception:
        if self._may_be_stored:
            return self._register.unknown(str(failure))
        return self._register.unavailable("store", failure)
