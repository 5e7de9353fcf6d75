"""Renewal on a cluster: what differs from one server."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.cluster.slots import slot_of
from holdfast.engines.redis.connections.channel import KeeperChannel
from holdfast.engines.redis.dialect.replies import TryAgain
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.keeper import Leases, RedisKeeper, each
from holdfast.engines.redis.scripts import RENEW


class ClusterLeases(Leases):
    """Renewal and withdrawal on any channel of a cluster."""

    def _batches(self, attempts: Sequence[RedisAttempt]) -> Sequence[Sequence[RedisAttempt]]:
        """A script may touch one slot only."""
        by_slot: dict[int, list[RedisAttempt]] = {}
        for attempt in attempts:
            by_slot.setdefault(slot_of(attempt.claim.name), []).append(attempt)
        return [batch for same in by_slot.values() for batch in super(ClusterLeases, self)._batches(same)]

    async def renew(
        self, attempts: Sequence[RedisAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        """A slot that is being moved has keys on two servers, and a script that names several of them runs on neither.
        The lock itself is one key: renewed alone, no lease is lost however long the move takes."""
        answers = list(await super().renew(attempts, ttl, timeout))
        torn = [at for at, answer in enumerate(answers) if isinstance(answer, TryAgain)]
        for replicas in sorted({attempts[at].claim.replicas for at in torn}):
            chosen = [at for at in torn if attempts[at].claim.replicas == replicas]
            calls = [_lock_alone(attempts[at], ttl) for at in chosen]
            replies = await self._channel.run_guarded(calls, replicas, timeout)
            for at, reply in zip(chosen, replies, strict=True):
                (answers[at],) = each(reply, 1)
        return answers


class ClusterKeeper(RedisKeeper):
    """See :class:`holdfast.engines.base.WatchingKeeper`."""

    def __init__(self, channel: KeeperChannel, token_ttl: float | None) -> None:
        super().__init__(channel, token_ttl)
        self._leases = ClusterLeases(channel, token_ttl)


def _lock_alone(attempt: RedisAttempt, ttl: float) -> Call:
    """A renewal whose keys are all the lock. The holder's metadata and the counter have to wait for the next one."""
    name, replicas = attempt.claim.name, attempt.claim.replicas
    return Call(RENEW, (name,) * 3, (math.ceil(ttl * 1000), 0, int(replicas > 0), attempt.owner), [name])
