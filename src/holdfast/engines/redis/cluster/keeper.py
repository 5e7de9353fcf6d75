"""A cluster for a client's watchdog: what differs from one server."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.redis import modes
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
        The lock itself is one key: renewed alone, no lease is lost however long the move takes. (That of a reader is
        two keys, which are renewed one after the other.)"""
        answers = list(await super().renew(attempts, ttl, timeout))
        torn = [at for at, answer in enumerate(answers) if isinstance(answer, TryAgain)]
        for replicas in sorted({attempts[at].claim.replicas for at in torn}):
            chosen = [at for at in torn if attempts[at].claim.replicas == replicas]
            calls = {at: modes.renewal_apart(attempts[at], ttl, always_write=replicas > 0) for at in chosen}
            step = 0
            while asked := [at for at in chosen if len(calls[at]) > step and (not step or answers[at] is Found.OURS)]:
                replies = await self._channel.run_tracked([calls[at][step] for at in asked], replicas, timeout)
                for at, reply in zip(asked, replies, strict=True):
                    (answers[at],) = leases.decode_renew(reply, 1)
                step += 1
        return answers
