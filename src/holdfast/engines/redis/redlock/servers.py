"""The servers of one session, asked together: which are asked, what is noted of those that do not answer, and the error
when there is no majority."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.connections.group import ServerGroup
from holdfast.engines.redis.dialect.leases import FREE
from holdfast.engines.redis.dialect.replies import Answer, WrongType
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock.health import Health
from holdfast.engines.redis.redlock.quorum import majority
from holdfast.errors import EngineRefused

C = TypeVar("C", bound=Channel)

#: What scripts of locks reply; anything else is looked at.
_REPLIES: Final = frozenset({bytes, int})


class Skipped(RequestFailed):
    """In place of the answer of a server that was not worth asking: it had failed a moment ago."""


class Servers(Generic[C]):
    """Answers are as in :mod:`~holdfast.engines.redis.redlock.quorum`: one for each server, in the servers' order. A
    server that was not worth asking has failed as the last time, without anything having happened there."""

    def __init__(self, group: ServerGroup[C], channels: Sequence[C], labels: Sequence[str], runtime: Runtime) -> None:
        self.group = group
        self.channels = channels
        self._all = range(len(channels))
        self._backwards = self._all[::-1]
        self._channels_backwards = channels[::-1]
        self.health = Health(len(channels))
        self.quorum = majority(len(channels))
        self._labels = labels  # name the servers in errors
        self._runtime = runtime
        self._last_failures: dict[int, RequestFailed | EngineRefused] = {}

    # -- asking ----------------------------------------------------------------------------------------------------

    async def ask(self, call: Call, timeout: float) -> list[Answer]:
        if not self.health.ailing:
            return await self.ask_some(self._all, call, timeout)
        return await self._ask(self.worth_asking(), call, timeout)

    async def release(
        self, call: Call, timeout: float, *, everywhere: bool = False, done: Collection[int] = ()
    ) -> list[Answer]:
        """As ``ask``, for releases: in reverse order. Waiters queue at one of the first servers and are woken by its
        release: by then the others must be free, or the waiter finds no majority and loses its place.

        ``everywhere``: a request may be under way to a server that did not answer, and only now can a tombstone be
        left there. ``done``: servers that are not asked again, and would find nothing.
        """
        chosen = self._all if everywhere or not self.health.ailing else self.worth_asking()
        if len(chosen) == len(self._all) and not done:
            return (await self.ask_some(self._backwards, call, timeout))[::-1]
        answers = await self._ask([server for server in chosen[::-1] if server not in done], call, timeout)
        for server in done:
            answers[server] = FREE
        return answers

    async def ask_after(self, server: int, first: Answer, call: Call, timeout: float) -> list[Answer]:
        """As ``ask``, when ``server`` has answered ``first`` already."""
        others = [other for other in self.worth_asking() if other != server]
        return self._spread([server, *others], [first, *await self.ask_some(others, call, timeout)])

    async def ask_some(self, servers: Sequence[int], call: Call, timeout: float) -> list[Answer]:
        """The answers of ``servers`` alone, in the order given."""
        if servers is self._all:
            channels = self.channels
        elif servers is self._backwards:
            channels = self._channels_backwards
        else:
            channels = [self.channels[server] for server in servers]
        sent = self._runtime.now()
        answers = await self.group.ask(channels, call, timeout)
        if self.health.ailing or not _REPLIES.issuperset(map(type, answers)):
            self._note(servers, answers, sent)
        return answers

    async def majority_of(
        self, call: Call, timeout: float, *, name: str | None = None, changes: bool = False
    ) -> list[Any]:
        """The usable answers, a majority at least."""
        answers = await self.ask(call, timeout)
        usable = [answer for answer in answers if not isinstance(answer, Exception)]
        if len(usable) < self.quorum:
            raise self.too_few(failures(answers), may_have_happened=changes, name=name)
        return usable

    def worth_asking(self) -> list[int]:
        return self.health.worth_asking(self._runtime.now())

    def failed(self, server: int, failure: RequestFailed | EngineRefused, sent: float) -> None:
        """Note that a request sent at ``sent`` got no answer."""
        now = self._runtime.now()
        self._last_failures[server] = failure
        self.health.failed(server, now, now - sent)

    async def _ask(self, servers: Sequence[int], call: Call, timeout: float) -> list[Answer]:
        return self._spread(servers, await self.ask_some(servers, call, timeout))

    def _note(self, servers: Sequence[int], answers: Sequence[Answer], sent: float) -> None:
        for server, answer in zip(servers, answers, strict=True):
            # A key of another type concerns that lock, not the server. Any other refusal concerns the server: with a
            # changed password, every request would try to connect to it uselessly.
            if isinstance(answer, RequestFailed | EngineRefused) and not isinstance(answer, WrongType):
                self.failed(server, answer, sent)
            elif self.health.ailing:
                self.health.answered(server)

    def _spread(self, servers: Sequence[int], answers: Sequence[Answer]) -> list[Answer]:
        """``answers`` of ``servers``, at their positions among all servers."""
        given: list[Answer] = [None] * len(self.channels)
        for server, answer in zip(servers, answers, strict=True):
            given[server] = answer
        if len(servers) < len(given):
            for server in set(range(len(given))).difference(servers):
                last = self._last_failures.get(server, "failed a moment ago")
                refused = isinstance(last, EngineRefused)  # and would again: that is not the same as unreachable
                given[server] = last if refused else Skipped(str(last), may_have_happened=False)
        return given

    # -- no majority -----------------------------------------------------------------------------------------------

    def too_few(
        self, failed: Mapping[int, Exception], *, may_have_happened: bool, name: str | None = None
    ) -> RequestFailed | EngineRefused:
        """The error for it. Next time all are asked, also those that were skipped."""
        self.health.skip_none()
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
        details = "; ".join(f"{label}: {error}" for label, error in errors.items()) or "the servers do not agree"
        return RequestFailed(
            f"no majority of {self.quorum} of {len(self.channels)} servers: {details}",
            may_have_happened=may_have_happened,
            errors=errors,
        )


def failures(answers: Sequence[Answer]) -> dict[int, Exception]:
    return {server: answer for server, answer in enumerate(answers) if isinstance(answer, Exception)}
