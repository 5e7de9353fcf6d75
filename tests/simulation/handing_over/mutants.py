"""Deliberate bugs of the hand-over from one process to the next."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from unittest import mock

from holdfast._core.acquisition import Acquisition
from holdfast._core.grant import Grant
from holdfast.engines.base import Attempt, Busy, Granted, Handed
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.dialect import pushes
from holdfast.engines.redis.session import RedisSession
from holdfast.engines.redis.waiting.contender import RedisContender
from holdfast.engines.redis.waiting.direct_contender import DirectContender
from tests.simulation.client.channel import SimWatch
from tests.simulation.mutants import Mutant, register, rewrite
from tests.simulation.world.base import BaseWorld

HAND_OVER_MUTANTS: Final[dict[str, Mutant]] = {}
_mutant = partial(register, among=HAND_OVER_MUTANTS)
_handed_over = Grant.handed_over


@_mutant
def hand_over_to_a_waiter_that_has_left(world: BaseWorld) -> Iterator[None]:
    """A release gives the lock to a claim that was given up."""
    rewrite(world, "release", r"call\('EXISTS', gone\) == 1", "false")
    yield


@_mutant
def leaving_gives_nothing_back(world: BaseWorld) -> Iterator[None]:
    """A waiter that gives up leaves the queue, but not the lock that it was handed meanwhile."""

    async def leave(self: DirectContender) -> bool:
        self.abandon()
        return await RedisContender.leave(self)

    with mock.patch.object(DirectContender, "leave", leave):
        yield


@_mutant
def deadline_from_the_push(world: BaseWorld) -> Iterator[None]:
    """The deadline of what was handed over counts from the push, although the lease began before it arrived."""
    accepted = Acquisition._accepted

    def late(self: Acquisition, attempt: Attempt, handed: Handed) -> Grant | None:
        return accepted(self, attempt, handed._replace(sent=self._core.front.now()))

    with mock.patch.object(Acquisition, "_accepted", late):
        yield


@_mutant
def handed_over_for_the_whole_ttl(world: BaseWorld) -> Iterator[None]:
    """What was handed over is taken for a lease as long as any other."""

    def for_long(self: Grant, sent: float, lease: float, now: float) -> None:
        _handed_over(self, sent, self.ttl, now)

    with mock.patch.object(Grant, "handed_over", for_long):
        yield


@_mutant
def push_to_any_owner(world: BaseWorld) -> Iterator[None]:
    """A waiter takes for its own what was pushed to an earlier claim on its connection."""
    pushed_to = SimWatch.pushed_to

    def any_owner(self: SimWatch, push: Any) -> None:
        handed = None if push is None else pushes.handed((push[0].encode(), *push[1:]))
        if handed is not None:
            push = (push[0], push[1], push[2].replace(handed.waiter, self.waiter))
        pushed_to(self, push)

    with mock.patch.object(SimWatch, "pushed_to", any_owner):
        yield


@_mutant
def hand_over_without_owner_check(world: BaseWorld) -> Iterator[None]:
    """A late release takes the lock from the next owner, and hands it over."""
    rewrite(world, "release", r"if held ~= 1 then return held end", "redis.call('DEL', KEYS[1])")
    yield


@_mutant
def dropped_head_keeps_the_lock(world: BaseWorld) -> Iterator[None]:
    """The push reached no client, and the waiter is dropped; but the lock is not taken back from it."""
    rewrite(world, "release", r"call\('DEL', lock\)(?=\s+if heard)", "")
    yield


@_mutant
def any_answer_confirms(world: BaseWorld) -> Iterator[None]:
    """So does one over another connection than the push, although the lock was handed over, and lost, before it."""
    acquire = RedisSession.acquire

    async def confirming(self: RedisSession, attempt: RedisAttempt, timeout: float) -> Granted | Busy:
        sent = self._runtime.now()
        answer = await acquire(self, attempt, timeout)
        attempt.confirmed = max(sent, attempt.confirmed)
        return answer

    with mock.patch.object(RedisSession, "acquire", confirming):
        yield
