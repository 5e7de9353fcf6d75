"""Redlock's watchdog side: a majority decides about each renewal, every server about a withdrawal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed, Suspects, Withdrawn
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.connections.group import KeeperFleet
from holdfast.engines.redis.dialect.keys import is_side_key, keys_of
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing
from holdfast.engines.redis.keeper import CHUNK, FOUND, milliseconds, tombstone_ms, withdrawal
from holdfast.engines.redis.redlock import quorum
from holdfast.engines.redis.redlock.servers import Servers, failures
from holdfast.engines.redis.scripts import JOIN, RELEASE, RENEW

C = TypeVar("C", bound=Channel)
#: To acquire is to ask all servers several times in a row: for their time (seldom), for the lock, for the token
#: (seldom), and to take it back. Each has this part of the time, which so stays far below the ttl; but if it is short
#: anyway, enough for a server that is merely busy. To release has the same steps: a connection need not be told anew
#: each time how long to wait.
_STEPS: Final = 4
_SHORTEST_STEP: Final = 0.1
#: The watchdog renews to less only to ask whether a lock is still held.
_SHORTEST_LEASE: Final = 0.1


class RedlockLeases(Generic[C]):
    """Renewal and withdrawal on a majority. The keeper does both in batches; a session does one at a time."""

    def __init__(self, servers: Servers[C], token_ttl: float | None) -> None:
        self._servers = servers
        self._quorum = servers.quorum
        self._token_ttl = milliseconds(token_ttl)

    async def renew(
        self, attempts: Sequence[RedlockAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        answers: list[Found | RequestFailed] = []
        for start in range(0, len(attempts), CHUNK):
            answers += await self._renew(attempts[start : start + CHUNK], ttl, timeout / 2)
        return answers

    async def _renew(
        self, attempts: Sequence[RedlockAttempt], ttl: float, timeout: float
    ) -> list[Found | RequestFailed]:
        names = [key for attempt in attempts for key in keys_of(attempt.claim.name).renew]
        args: list[Argument] = [math.ceil(ttl * 1000), self._token_ttl, 0, *(attempt.owner for attempt in attempts)]
        call = Call(RENEW, names, args, watched=[attempt.claim.name for attempt in attempts])
        replies = await self._servers.ask_guarded(call, timeout)
        answers: list[Found | RequestFailed] = []
        absent: dict[int, list[RedlockAttempt]] = {}
        for at, attempt in enumerate(attempts):
            each = [reply if isinstance(reply, Exception) else FOUND[reply[at]] for reply in replies]
            found = quorum.found(each, self._quorum)
            if found is Found.OURS and ttl >= _SHORTEST_LEASE:
                for server, answer in enumerate(each):
                    if answer is Found.GONE:
                        absent.setdefault(server, []).append(attempt)
            answers.append(found or self._unrenewed(replies))
        if absent:
            await self._join(absent, ttl, timeout)
        return answers

    def _unrenewed(self, replies: Sequence[Answer]) -> RequestFailed:
        failure = self._servers.too_few(failures(replies), may_have_happened=True)
        if isinstance(failure, RequestFailed):
            return failure
        # Tried again until the lease runs out: an ACL can be mended, a lease cannot.
        again = RequestFailed(str(failure), may_have_happened=False)
        again.__cause__ = failure
        return again

    async def _join(self, absent: Mapping[int, Sequence[RedlockAttempt]], ttl: float, timeout: float) -> None:
        """Servers that were away, or have lost their memory, take part in what the majority has just confirmed.

        Another thread may release the lock meanwhile, and be faster: then a server would have a lock that is nobody's
        any more. So a claim says before its release is sent that it is over, and here one looks before and after.
        """
        await self._servers.ask_each(
            {server: call for server, attempts in absent.items() if (call := self._join_call(attempts, ttl))}, timeout
        )
        for server, attempts in absent.items():
            for attempt in attempts:
                if attempt.token is None:
                    await self._servers.ask_some([server], release_call(attempt, tombstone=True), timeout)

    def _join_call(self, attempts: Sequence[RedlockAttempt], ttl: float) -> Call | None:
        held = [(attempt, token) for attempt in attempts if (token := attempt.token) is not None]
        args: list[Argument] = [math.ceil(ttl * 1000), self._token_ttl]
        for attempt, token in held:
            attempt.unresolved = True  # a late duplicate of this must not bring back what is released by then
            args += (attempt.owner, token, attempt.claim.tokens, attempt.claim.description)
        names = [key for attempt, _ in held for key in keys_of(attempt.claim.name).join]
        return Call(JOIN, names, args, watched=[attempt.claim.name for attempt, _ in held]) if held else None

    async def withdraw(self, attempts: Sequence[RedlockAttempt], timeout: float) -> Sequence[Withdrawn]:
        """All of it at once, in one buffer for each server. One that is silent costs a part of the time, once, and then
        is left alone for a while; the others are rid of everything nevertheless."""
        for attempt in attempts:
            attempt.token = None
        wanted = [(attempt, owner) for attempt in attempts for owner in (*attempt.leftovers, attempt.owner)]
        answers = await self._servers.let_go_all(
            [_withdrawal(attempt, owner) for attempt, owner in wanted],
            [_where_freed(attempt, owner) for attempt, owner in wanted],
            step_of(timeout),
        )
        found = {
            (attempt, owner): self._withdrawn(attempt, owner, each)
            for (attempt, owner), each in zip(wanted, answers, strict=True)
        }
        lingers = RequestFailed("something of an earlier attempt could not be withdrawn", may_have_happened=True)
        return [lingers if attempt.leftovers else found[attempt, attempt.owner] for attempt in attempts]

    async def withdraw_owner(
        self, attempt: RedlockAttempt, owner: str, timeout: float, *, everywhere: bool = False
    ) -> None:
        done = _where_freed(attempt, owner)
        answers = await self._servers.let_go(_withdrawal(attempt, owner), timeout, everywhere=everywhere, done=done)
        outcome = self._withdrawn(attempt, owner, answers)
        if isinstance(outcome, Exception):
            raise outcome

    def _withdrawn(self, attempt: RedlockAttempt, owner: str, answers: Sequence[Answer]) -> Withdrawn:
        """From every server, not only from a majority: each that still had it would have to wait for its ttl. One that
        has answered is not asked again: while another is away, this is repeated for as long."""
        note_freed(attempt, owner, answers)
        if any(isinstance(answer, RequestFailed) for answer in answers):
            return self._servers.failure(failures(answers), may_have_happened=True, name=attempt.claim.name)
        attempt.leftovers = tuple(each for each in attempt.leftovers if each != owner)
        return quorum.found([as_found(answer) for answer in answers], self._quorum) or Found.GONE


class RedlockKeeper(Generic[C]):
    """See :class:`holdfast.engines.base.Keeper`. ``labels`` name the servers in errors."""

    def __init__(
        self,
        fleet: KeeperFleet[C],
        channels: Sequence[C],
        labels: Sequence[str],
        runtime: Runtime,
        token_ttl: float | None,
    ) -> None:
        self._fleet = fleet
        self._channels = channels
        self._leases = RedlockLeases(Servers(fleet, channels, labels, runtime), token_ttl)

    async def renew(
        self, attempts: Sequence[RedlockAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        return await self._leases.renew(attempts, ttl, timeout)

    async def withdraw(self, attempts: Sequence[RedlockAttempt], timeout: float) -> Sequence[Withdrawn]:
        return await self._leases.withdraw(attempts, timeout)

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        suspects = await self._fleet.wait_for_hints(self._channels, until, wakeup)
        return suspects if suspects == ALL_NAMES else {key for key in suspects if not is_side_key(key)}

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


def step_of(timeout: float) -> float:
    """The part of ``timeout`` that one question to all servers may take."""
    return max(timeout / _STEPS, min(timeout, _SHORTEST_STEP))


def release_call(attempt: RedlockAttempt, *, tombstone: bool) -> Call:
    keys = keys_of(attempt.claim.name)
    closing = Closing.of(keys.channel, "PUBLISH", tombstone_ms(attempt)) if tombstone else keys.published("PUBLISH")
    return Call(RELEASE, keys.release, Arguments(attempt.owner, closing))


def _withdrawal(attempt: RedlockAttempt, owner: str) -> Call:
    return Call(RELEASE, *withdrawal(attempt, owner, "PUBLISH"))


def _where_freed(attempt: RedlockAttempt, owner: str) -> set[int]:
    return {server for freed, server in attempt.freed if freed == owner}


def note_freed(attempt: RedlockAttempt, owner: str, answers: Sequence[Answer]) -> None:
    attempt.freed |= {(owner, server) for server, answer in enumerate(answers) if not isinstance(answer, RequestFailed)}


def as_found(answer: Answer) -> Found | Exception:
    return answer if isinstance(answer, Exception) else FOUND[answer]
