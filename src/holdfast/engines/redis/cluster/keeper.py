"""A cluster for a client's watchdog: what differs from one server."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.cluster.slots import slot_of
from holdfast.engines.redis.dialect import leases
from holdfast.engines.redis.dialect.replies import TryAgain
from holdfast.engines.redis.keeper import RedisKeeper


class ClusterKeeper(RedisKeeper):
    """See :class:`holdfast.engines.base.WatchingKeeper`."""

    def _batches(self, attempts: Sequence[RedisAttempt]) -> Sequence[Sequence[RedisAttempt]]:
        """A script may touch one slot only."""
        by_slot: dict[int, list[RedisAttempt]] = {}
        for attempt in attempts:
            by_slot.setdefault(slot_of(attempt.claim.name), []).append(attempt)
        return [batch for same in by_slot.values() for batch in super(ClusterKeeper, self)._batches(same)]

    async def renew(
        self, attempts: Sequence[RedisAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        """A slot that is being moved has keys on two servers, and a script that names several of them runs on neither.
        The lock itself is one key: renewed alone, no lease is lost however long the move takes."""
        answers = list(await super().renew(attempts, ttl, timeout))
        torn = [at for at, answer in enumerate(answers) if isinstance(answer, TryAgain)]
        for replicas in sorted({attempts[at].claim.replicas for at in torn}):
            chosen = [at for at in torn if attempts[at].claim.replicas == replicas]
            calls = [
                leases.encode_renew(
                    [(attempts[at].claim.name, attempts[at].owner)],
                    ttl,
                    self._counter_ttl,
                    always_write=replicas > 0,
                    lock_only=True,
                )
                for at in chosen
            ]
            replies = await self._channel.run_tracked(calls, replicas, timeout)
            for at, reply in zip(chosen, replies, strict=True):
                (answers[at],) = leases.decode_renew(reply, 1)
        return answers
