"""The Redis engine's watchdog side: renewing and withdrawing in batches, and hints by client tracking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed, Suspects, Withdrawn
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.connections.channel import Channel, KeeperChannel
from holdfast.engines.redis.dialect.keys import is_side_key, keys_of
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Answer, WrongType
from holdfast.engines.redis.dialect.requests import Call, Plain, Publish
from holdfast.engines.redis.scripts import RELEASE, RENEW
from holdfast.errors import EngineRefused

#: Renewed by one script: a longer one would keep the server from its other clients for too long.
CHUNK: Final = 200
#: A tombstone outlives any duplicate of its claim, and the claim's own lease.
_TOMBSTONE: Final = 60.0
#: A ttl in seconds that never extends a lease.
_ONLY_ASK: Final = 0.001

FOUND: Final = {1: Found.OURS, 0: Found.GONE, -1: Found.STOLEN}


def milliseconds(token_ttl: float | None) -> int:
    """A time to keep fencing counters, for the scripts; 0: they never expire."""
    return 0 if token_ttl is None else math.ceil(token_ttl * 1000)


class Leases:
    """Renewal and withdrawal on any channel. The keeper does both in batches; a session does one at a time."""

    def __init__(self, channel: Channel, token_ttl: float | None) -> None:
        self._channel = channel
        self._token_ttl = milliseconds(token_ttl)

    async def renew(
        self, attempts: Sequence[RedisAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        answers: dict[RedisAttempt, Found | RequestFailed] = {}
        # Those with replicas come last: the others must not wait for the replicas of these.
        for replicas in sorted({attempt.claim.replicas for attempt in attempts}):
            batches = self._batches([attempt for attempt in attempts if attempt.claim.replicas == replicas])
            calls = [self._renewal(batch, ttl, replicas) for batch in batches]
            replies = await self._channel.run_guarded(calls, replicas, timeout)
            for batch, reply in zip(batches, replies, strict=True):
                answers.update(zip(batch, each(reply, len(batch)), strict=True))
        return [answers[attempt] for attempt in attempts]

    def _batches(self, attempts: Sequence[RedisAttempt]) -> Sequence[Sequence[RedisAttempt]]:
        """What one script may renew at a time."""
        return [attempts[start : start + CHUNK] for start in range(0, len(attempts), CHUNK)]

    def _renewal(self, attempts: Sequence[RedisAttempt], ttl: float, replicas: int) -> Call:
        names = [key for attempt in attempts for key in keys_of(attempt.claim.name).renew]
        args: list[Argument] = [math.ceil(ttl * 1000), self._token_ttl, 1 if replicas else 0]
        args += [attempt.owner for attempt in attempts]
        return Call(RENEW, names, args, watched=[attempt.claim.name for attempt in attempts])

    async def withdraw(self, attempts: Sequence[RedisAttempt], timeout: float) -> Sequence[Withdrawn]:
        owners = [(attempt, owner) for attempt in attempts for owner in (attempt.owner, *attempt.leftovers)]
        publish = self._channel.publish
        calls = [Call(RELEASE, *withdrawal(attempt, owner, publish)) for attempt, owner in owners]
        answers: dict[RedisAttempt, Withdrawn] = {}
        for (attempt, owner), reply in zip(owners, await self._channel.run_together(calls, timeout), strict=True):
            answer: Withdrawn = reply if isinstance(reply, RequestFailed | EngineRefused) else FOUND[reply]
            if owner == attempt.owner:
                answers[attempt] = answer
            elif isinstance(answer, RequestFailed):
                answers[attempt] = answer  # what is left of an earlier attempt: to be tried again with all of it
            else:
                attempt.leftovers = tuple(each for each in attempt.leftovers if each != owner)
        return [answers[attempt] for attempt in attempts]


class RedisKeeper:
    """See :class:`holdfast.engines.base.WatchingKeeper`."""

    def __init__(self, channel: KeeperChannel, token_ttl: float | None) -> None:
        self._channel = channel
        self._leases = Leases(channel, token_ttl)

    async def renew(
        self, attempts: Sequence[RedisAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        return await self._leases.renew(attempts, ttl, timeout)

    async def withdraw(self, attempts: Sequence[RedisAttempt], timeout: float) -> Sequence[Withdrawn]:
        return await self._leases.withdraw(attempts, timeout)

    async def watch(self, attempts: Sequence[RedisAttempt], timeout: float) -> Sequence[Found | RequestFailed]:
        """One command for each claim: it looks, and the connection tracks what it has looked at."""
        looks = [Plain("HEXISTS", attempt.claim.name, attempt.owner) for attempt in attempts]
        answers = [_seen(reply) for reply in await self._channel.run_together(looks, timeout)]
        gone = [at for at, answer in enumerate(answers) if answer is Found.GONE]
        if gone:  # or stolen: a renewal to almost nothing tells them apart, and changes nothing
            checked = await self._leases.renew([attempts[at] for at in gone], _ONLY_ASK, timeout)
            for at, answer in zip(gone, checked, strict=True):
                answers[at] = answer
        return answers

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        suspects = await self._channel.wait_for_hints(until, wakeup)
        return suspects if suspects == ALL_NAMES else {key for key in suspects if not is_side_key(key)}

    async def close(self) -> None:
        await self._channel.close()


def withdrawal(attempt: RedisAttempt, owner: str, publish: Publish) -> tuple[tuple[str, ...], tuple[Argument, ...]]:
    """Keys and arguments that remove whatever ``owner`` has of a lock, and its place in the line, for good."""
    keys, waiter = keys_of(attempt.claim.name), attempt.waiter
    names: tuple[str, ...] = (*keys.release,)
    args: tuple[Argument, ...] = (owner, keys.channel, publish, tombstone_ms(attempt))
    if waiter is not None:
        names += (keys.queue, keys.waiter(waiter))
        args += (waiter,)
    return names, args


def tombstone_ms(attempt: RedisAttempt) -> int:
    return math.ceil(max(2 * attempt.claim.ttl, _TOMBSTONE) * 1000)


def _seen(reply: Answer) -> Found | RequestFailed:
    """What HEXISTS says of a claim. A key of another type has replaced the lock."""
    if isinstance(reply, WrongType):
        return Found.STOLEN
    if isinstance(reply, Exception):
        (failure,) = each(reply, 1)
        return failure
    return Found.OURS if reply else Found.GONE


def each(reply: Answer, count: int) -> Sequence[Found | RequestFailed]:
    """One answer for each claim of a batch."""
    if isinstance(reply, EngineRefused):
        # Tried again until the lease runs out: an ACL can be mended, a lease cannot.
        refusal, reply = reply, RequestFailed(str(reply), may_have_happened=False)
        reply.__cause__ = refusal
    if isinstance(reply, RequestFailed):
        return [reply] * count
    return [FOUND[found] for found in reply]
