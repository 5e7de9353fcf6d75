"""The Redis engine for a client's watchdog: leases are renewed and withdrawn in batches, losses are pushed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed, Suspects, Withdrawn
from holdfast.engines.redis import modes
from holdfast.engines.redis.attempt import RedisAttempt, withdrawal
from holdfast.engines.redis.connections.channel import KeeperChannel
from holdfast.engines.redis.dialect import leases
from holdfast.engines.redis.dialect.keys import suspected
from holdfast.engines.redis.dialect.packing import counter_ttl
from holdfast.errors import EngineRefused

#: A ttl in seconds that never extends a lease.
_ONLY_ASK: Final = 0.001


class RedisKeeper:
    """See :class:`holdfast.engines.base.WatchingKeeper`."""

    def __init__(self, channel: KeeperChannel, token_ttl: float | None) -> None:
        self._channel = channel
        self._counter_ttl = counter_ttl(token_ttl)

    async def renew(
        self, attempts: Sequence[RedisAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        asked: list[RedisAttempt] = []
        answers: list[Found | RequestFailed] = []
        # Those with replicas come last: the others must not wait for the replicas of these.
        for replicas in sorted({attempt.claim.replicas for attempt in attempts}):
            batches = self._batches([attempt for attempt in attempts if attempt.claim.replicas == replicas])
            calls = [modes.renewal(batch, ttl, self._counter_ttl, always_write=replicas > 0) for batch in batches]
            replies = await self._channel.run_tracked(calls, replicas, timeout)
            for batch, reply in zip(batches, replies, strict=True):
                asked += batch
                answers += leases.decode_renew(reply, len(batch))
        if asked == list(attempts):
            return answers
        by_attempt = dict(zip(asked, answers, strict=True))
        return [by_attempt[attempt] for attempt in attempts]

    def _batches(self, attempts: Sequence[RedisAttempt]) -> Sequence[Sequence[RedisAttempt]]:
        """Splits leases into parts that one script may renew."""
        return list(modes.batches(attempts))

    async def withdraw(self, attempts: Sequence[RedisAttempt], timeout: float) -> Sequence[Withdrawn]:
        owners = [(attempt, owner) for attempt in attempts for owner in (attempt.owner, *attempt.leftovers)]
        calls = [withdrawal(attempt, owner, self._channel.publish) for attempt, owner in owners]
        answers: dict[RedisAttempt, Withdrawn] = {}
        for (attempt, owner), reply in zip(owners, await self._channel.run_together(calls, timeout), strict=True):
            failed = isinstance(reply, RequestFailed | EngineRefused)
            answer: Withdrawn = reply if failed else leases.decode_release(reply)
            if owner == attempt.owner:
                answers[attempt] = answer
            elif isinstance(answer, RequestFailed):
                answers[attempt] = answer  # an earlier owner's leftovers: everything of this attempt is tried again
            else:
                attempt.leftovers = tuple(each for each in attempt.leftovers if each != owner)
        return [answers[attempt] for attempt in attempts]

    async def watch(self, attempts: Sequence[RedisAttempt], timeout: float) -> Sequence[Found | RequestFailed]:
        """One command for each claim on a lock: it looks, and the connection tracks what it has looked at."""
        locks = [at for at, attempt in enumerate(attempts) if modes.is_lock(attempt)]
        looks = [leases.encode_look(attempts[at].claim.name, attempts[at].owner) for at in locks]
        answers: list[Found | RequestFailed] = [Found.GONE] * len(attempts)
        if looks:
            for at, reply in zip(locks, await self._channel.run_together(looks, timeout), strict=True):
                answers[at] = leases.decode_look(reply)
        gone = [at for at, answer in enumerate(answers) if answer is Found.GONE]
        if gone:  # or stolen, or not asked yet: a renewal with a tiny ttl distinguishes them, and changes nothing
            checked = await self.renew([attempts[at] for at in gone], _ONLY_ASK, timeout)
            for at, answer in zip(gone, checked, strict=True):
                answers[at] = answer
        return answers

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        suspects = await self._channel.wait_for_hints(until, wakeup)
        return suspects if suspects == ALL_NAMES else {name for key in suspects for name in suspected(key)}

    async def close(self) -> None:
        await self._channel.close()
