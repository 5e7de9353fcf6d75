"""The Redis engine on a cluster: what differs from one server."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.engines.base import Claim, Found, RequestFailed
from holdfast.engines.redis.cluster.slots import slot_of
from holdfast.engines.redis.dialect.replies import TryAgain
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.scripts import PING, RENEW
from holdfast.engines.redis.session import RedisSession, each


class ClusterSession(RedisSession):
    """See :class:`holdfast.engines.base.Session`."""

    def _batches(self, claims: Sequence[Claim]) -> Sequence[Sequence[Claim]]:
        """A script may touch one slot only."""
        by_slot: dict[int, list[Claim]] = {}
        for claim in claims:
            by_slot.setdefault(slot_of(claim.name), []).append(claim)
        return [batch for same in by_slot.values() for batch in super(ClusterSession, self)._batches(same)]

    async def renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> Sequence[Found | RequestFailed]:
        """A slot that is being moved has keys on two servers, and a script that names several of them runs on neither.
        The lock itself is one key: renewed alone, no lease is lost however long the move takes."""
        answers = list(await super().renew(claims, ttl, timeout))
        torn = [at for at, answer in enumerate(answers) if isinstance(answer, TryAgain)]
        for replicas in sorted({claims[at].replicas for at in torn}):
            chosen = [at for at in torn if claims[at].replicas == replicas]
            calls = [_lock_alone(claims[at], ttl) for at in chosen]
            replies = await self._channel.run_guarded(calls, replicas, timeout)
            for at, reply in zip(chosen, replies, strict=True):
                (answers[at],) = each(reply, 1)
        return answers

    async def ping(self, timeout: float) -> None:
        """A cluster serves as long as most of its masters are there; others may be failing over, and their locks with
        them."""
        servers = await self._channel.servers(timeout)
        missing = len(servers) // 2 + 1
        failure = RequestFailed("no server of the cluster is known", may_have_happened=False)
        for server in servers:
            try:
                await server.run(PING, (), (), timeout)
                missing -= 1
            except RequestFailed as error:
                failure = error
            if not missing:
                return
        raise failure


def _lock_alone(claim: Claim, ttl: float) -> Call:
    """A renewal whose keys are all the lock. The holder's metadata and the counter have to wait for the next one."""
    return Call(
        RENEW, (claim.name,) * 3, (math.ceil(ttl * 1000), 0, int(claim.replicas > 0), claim.owner), [claim.name]
    )
