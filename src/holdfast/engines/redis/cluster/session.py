"""A cluster for a client's callers: what differs from one server."""

from __future__ import annotations

from holdfast.engines.base import Found, RequestFailed
from holdfast.engines.redis import modes
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.dialect.operators import encode_ping
from holdfast.engines.redis.dialect.replies import TryAgain
from holdfast.engines.redis.session import RedisSession


class ClusterSession(RedisSession):
    """See :class:`holdfast.engines.base.Session`."""

    async def renew(self, attempt: RedisAttempt, ttl: float, timeout: float) -> Found:
        answer = await self._renew(attempt, ttl, timeout)
        if isinstance(answer, TryAgain):  # its slot is being moved: see ``ClusterKeeper.renew``
            for call in modes.renewal_apart(attempt, ttl, always_write=attempt.claim.replicas > 0):
                answer = await self._renewed(attempt, call, timeout)
                if answer is not Found.OURS:
                    break
        if isinstance(answer, RequestFailed):
            raise answer
        return answer

    async def ping(self, timeout: float) -> None:
        """A cluster serves as long as most of its masters are reachable; others may be failing over, and their locks
        with them."""
        servers = await self._channel.servers(timeout)
        missing = len(servers) // 2 + 1
        failure = RequestFailed("no server of the cluster is known", may_have_happened=False)
        for server in servers:
            try:
                await server.run(encode_ping(), timeout)
                missing -= 1
            except RequestFailed as error:
                failure = error
            if not missing:
                return
        raise failure
