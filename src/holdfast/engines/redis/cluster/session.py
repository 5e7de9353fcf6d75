"""The Redis engine on a cluster: what differs from one server."""

from __future__ import annotations

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.keeper import ClusterLeases
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.scripts import PING
from holdfast.engines.redis.session import RedisSession


class ClusterSession(RedisSession):
    """See :class:`holdfast.engines.base.Session`."""

    def __init__(self, channel: Channel, runtime: Runtime, token_ttl: float | None) -> None:
        super().__init__(channel, runtime, token_ttl)
        self._leases = ClusterLeases(channel, token_ttl)

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
