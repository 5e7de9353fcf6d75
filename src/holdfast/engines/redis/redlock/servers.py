"""The servers of one session, asked together: who is asked, what is noted of those who do not answer, and what is said
when there is no majority."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.connections.group import Fleet
from holdfast.engines.redis.dialect.replies import Answer, WrongType
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock.health import Health
from holdfast.engines.redis.redlock.quorum import majority
from holdfast.errors import EngineRefused

C = TypeVar("C", bound=Channel)
#: What the release script answers where the lock is free.
_NOBODY: Final = 0


class LeftAlone(RequestFailed):
    """In place of the answer of a server that was not worth asking: it had failed a moment ago."""


class Servers(Generic[C]):
    """Answers are as in :mod:`~holdfast.engines.redis.redlock.quorum`: one for each server, in the servers' order. A
    server that was not worth asking has failed as the last time, without anything having happened there."""

    def __init__(self, fleet: Fleet[C], channels: Sequence[C], labels: Sequence[str], runtime: Runtime) -> None:
        self.fleet = fleet
        self.channels = channels
        self.health = Health(len(channels))
        self.quorum = majority(len(channels))
        self._labels = labels  # name the servers in errors
        self._runtime = runtime
        self._last_failures: dict[int, RequestFailed | EngineRefused] = {}

    # -- asking ----------------------------------------------------------------------------------------------------

    async def ask(self, call: Call, timeout: float) -> list[Answer]:
        return await self._ask(self.worth_asking(), call, timeout)

    async def let_go(
        self, call: Call, timeout: float, *, everywhere: bool = False, done: Collection[int] = ()
    ) -> list[Answer]:
        """As ``ask``, for releases: in reverse order. Waiters stand in line at one of the first servers and are woken
        by its release: by then the others shall be free, or he who wakes finds no majority and loses his place.

        ``everywhere``: something may be under way to a server that did not answer, and this is the only chance to leave
        a tombstone there. ``done``: servers that are not asked again, and would find nothing.
        """
        chosen = list(range(len(self.channels))) if everywhere else self.worth_asking()
        answers = await self._ask([server for server in chosen[::-1] if server not in done], call, timeout)
        for server in done:
            answers[server] = _NOBODY
        return answers

    async def let_go_all(
        self, calls: Sequence[Call], done: Sequence[Collection[int]], timeout: float
    ) -> list[list[Answer]]:
        """As ``let_go``, for many calls at once, each with the servers that need not be asked; on the connections that
        guard."""
        chosen = self.worth_asking()[::-1]
        asked = {server: [at for at in range(len(calls)) if server not in done[at]] for server in chosen}
        requests = {server: [calls[at] for at in numbers] for server, numbers in asked.items() if numbers}
        replies = dict(zip(requests, await self.ask_lists(requests, timeout), strict=True))
        given: list[dict[int, Answer]] = [dict.fromkeys(servers, _NOBODY) for servers in done]
        for server, answers in replies.items():
            for at, answer in zip(asked[server], answers, strict=True):
                given[at][server] = answer
        return [self._spread(list(each), list(each.values())) for each in given]

    async def ask_after(self, server: int, first: Answer, call: Call, timeout: float) -> list[Answer]:
        """As ``ask``, when ``server`` has said ``first`` already."""
        others = [other for other in self.worth_asking() if other != server]
        return self._spread([server, *others], [first, *await self.ask_some(others, call, timeout)])

    async def ask_some(self, servers: Sequence[int], call: Call, timeout: float) -> list[Answer]:
        """The answers of ``servers`` alone, in the order given."""
        sent = self._runtime.now()
        answers = await self.fleet.ask([self.channels[server] for server in servers], call, timeout)
        self._note(servers, answers, sent)
        return answers

    async def ask_guarded(self, call: Call, timeout: float) -> list[Answer]:
        """As ``ask``, on the connections that guard what is held: see ``Channel.run_guarded``."""
        chosen = self.worth_asking()
        return self._spread(chosen, await self.ask_each(dict.fromkeys(chosen, call), timeout))

    async def ask_each(self, calls: Mapping[int, Call], timeout: float) -> list[Answer]:
        """Some servers, each something of its own, on the connections that guard; the answers in the order given."""
        requests = {server: [call] for server, call in calls.items()}
        return [answer for (answer,) in await self.ask_lists(requests, timeout)]

    async def ask_lists(self, calls: Mapping[int, Sequence[Call]], timeout: float) -> list[Sequence[Answer]]:
        """The same, with several calls for each server, which are sent together."""
        sent = self._runtime.now()
        answers = await self.fleet.ask_each(
            [(self.channels[server], each) for server, each in calls.items()], 0, timeout
        )
        self._note(list(calls), [_of_server(each) for each in answers], sent)
        return answers

    async def majority_of(
        self, call: Call, timeout: float, *, name: str | None = None, changes: bool = False
    ) -> list[Any]:
        """The answers of those that gave one, a majority at least."""
        answers = await self.ask(call, timeout)
        usable = [answer for answer in answers if not isinstance(answer, Exception)]
        if len(usable) < self.quorum:
            raise self.too_few(failures(answers), may_have_happened=changes, name=name)
        return usable

    def worth_asking(self) -> list[int]:
        return self.health.worth_asking(self._runtime.now())

    def failed(self, server: int, failure: RequestFailed | EngineRefused, sent: float) -> None:
        """Note that a request sent at ``sent`` was in vain."""
        now = self._runtime.now()
        self._last_failures[server] = failure
        self.health.failed(server, now, now - sent)

    async def _ask(self, servers: Sequence[int], call: Call, timeout: float) -> list[Answer]:
        return self._spread(servers, await self.ask_some(servers, call, timeout))

    def _note(self, servers: Sequence[int], answers: Sequence[Answer], sent: float) -> None:
        for server, answer in zip(servers, answers, strict=True):
            # A key of another type is that lock's affair, not the server's. Any other refusal is: asked each time, one
            # with another password would be connected to in vain by every request.
            if isinstance(answer, RequestFailed | EngineRefused) and not isinstance(answer, WrongType):
                self.failed(server, answer, sent)
            elif self.health.ailing:
                self.health.answered(server)

    def _spread(self, servers: Sequence[int], answers: Sequence[Answer]) -> list[Answer]:
        """``answers`` of ``servers``, in their places among all."""
        given: list[Answer] = [None] * len(self.channels)
        for server, answer in zip(servers, answers, strict=True):
            given[server] = answer
        if len(servers) < len(given):
            for server in set(range(len(given))).difference(servers):
                last = self._last_failures.get(server, "failed a moment ago")
                refused = isinstance(last, EngineRefused)  # and would again: that is told apart from out of reach
                given[server] = last if refused else LeftAlone(str(last), may_have_happened=False)
        return given

    # -- no majority -----------------------------------------------------------------------------------------------

    def too_few(
        self, failed: Mapping[int, Exception], *, may_have_happened: bool, name: str | None = None
    ) -> RequestFailed | EngineRefused:
        """The error for it. Next time all are asked, also those that were left alone."""
        self.health.spare_nobody()
        return self.failure(failed, may_have_happened=may_have_happened, name=name)

    def failure(
        self, failed: Mapping[int, Exception], *, may_have_happened: bool, name: str | None = None
    ) -> RequestFailed | EngineRefused:
        """A refusal only if there would be no majority even if all servers could be reached."""
        refusals = [error for error in failed.values() if isinstance(error, EngineRefused)]
        if len(self.channels) - len(refusals) < self.quorum:
            refused = EngineRefused(str(refusals[0]), name=name)
            refused.__cause__ = refusals[0]
            return refused
        errors = {self._labels[server]: error for server, error in failed.items()}
        told = "; ".join(f"{label}: {error}" for label, error in errors.items()) or "the servers do not agree"
        return RequestFailed(
            f"no majority of {self.quorum} of {len(self.channels)} servers: {told}",
            may_have_happened=may_have_happened,
            errors=errors,
        )


def _of_server(answers: Sequence[Answer]) -> Answer:
    """The answer that tells most about the server: that it gave none to one of the calls."""
    return next((answer for answer in answers if isinstance(answer, RequestFailed)), answers[0])


def failures(answers: Sequence[Answer]) -> dict[int, Exception]:
    return {server: answer for server, answer in enumerate(answers) if isinstance(answer, Exception)}
