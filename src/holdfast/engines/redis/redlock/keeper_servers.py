"""The servers of one keeper, asked together on their tracking connections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import RequestFailed, Suspects
from holdfast.engines.redis.connections.channel import KeeperChannel
from holdfast.engines.redis.connections.group import KeeperGroup
from holdfast.engines.redis.dialect.leases import FREE
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock.servers import Servers

K = TypeVar("K", bound=KeeperChannel)


class KeeperServers(Servers[K]):
    """See :class:`~holdfast.engines.redis.redlock.servers.Servers`."""

    def __init__(self, group: KeeperGroup[K], channels: Sequence[K], labels: Sequence[str], runtime: Runtime) -> None:
        super().__init__(group, channels, labels, runtime)
        self.group: KeeperGroup[K] = group

    async def ask_tracked(self, calls: Sequence[Call], timeout: float) -> list[list[Answer]]:
        """As ``ask``, for several calls together, on the tracking connections: see ``KeeperChannel.run_tracked``."""
        chosen = self.worth_asking()
        given = await self._ask_lists(dict.fromkeys(chosen, calls), timeout)
        return [self._spread(chosen, [answers[at] for answers in given]) for at in range(len(calls))]

    async def ask_each(self, calls: Mapping[int, Call], timeout: float) -> list[Answer]:
        """Some servers, each with a call of its own, on the tracking connections; the answers in the order given."""
        requests = {server: [call] for server, call in calls.items()}
        return [answer for (answer,) in await self._ask_lists(requests, timeout)]

    async def release_all(
        self, calls: Sequence[Call], done: Sequence[Collection[int]], timeout: float
    ) -> list[list[Answer]]:
        """As ``release``, for many calls together, each with the servers that need not be asked; on the tracking
        connections."""
        chosen = self.worth_asking()[::-1]
        asked = {server: [at for at in range(len(calls)) if server not in done[at]] for server in chosen}
        requests = {server: [calls[at] for at in numbers] for server, numbers in asked.items() if numbers}
        replies = dict(zip(requests, await self._ask_lists(requests, timeout), strict=True))
        given: list[dict[int, Answer]] = [dict.fromkeys(servers, FREE) for servers in done]
        for server, answers in replies.items():
            for at, answer in zip(asked[server], answers, strict=True):
                given[at][server] = answer
        return [self._spread(list(each), list(each.values())) for each in given]

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        return await self.group.wait_for_hints(self.channels, until, wakeup)

    async def _ask_lists(self, calls: Mapping[int, Sequence[Call]], timeout: float) -> list[Sequence[Answer]]:
        """As ``ask_each``, with several calls for each server, which are sent together."""
        sent = self._runtime.now()
        answers = await self.group.ask_each(
            [(self.channels[server], each) for server, each in calls.items()], 0, timeout
        )
        self._note(list(calls), [_of_server(each) for each in answers], sent)
        return answers


def _of_server(answers: Sequence[Answer]) -> Answer:
    """The answer to judge the server by: a failure, if one of the calls failed."""
    return next((answer for answer in answers if isinstance(answer, RequestFailed)), answers[0])
