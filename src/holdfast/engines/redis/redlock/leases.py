"""Renewing and withdrawing on several servers: what a session and a keeper have in common.

A majority decides about a renewal. A withdrawal is complete when every server has answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.engines.base import Found, RequestFailed, Withdrawn
from holdfast.engines.redis.attempt import RedlockAttempt, withdrawal
from holdfast.engines.redis.dialect import leases
from holdfast.engines.redis.dialect.grants import Joining, encode_join
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock import quorum
from holdfast.engines.redis.redlock.servers import Servers, failures

#: An acquire asks all servers several times in a row: for their time (rarely), for the lock, for the token (rarely),
#: and to take it back. Each question has this part of the time, which stays far below the ttl; but where that is very
#: short, enough for a server that is merely busy. A release has the same steps, so that the timeout of a connection
#: rarely changes.
_STEPS: Final = 4
_SHORTEST_STEP: Final = 0.1
#: The watchdog renews to less than this (s) only to ask whether a lock is still held.
_SHORTEST_LEASE: Final = 0.1

#: The servers at which a claim was gone although a majority has it: they are to join in the lease.
Absent = Mapping[int, Sequence[RedlockAttempt]]


def step_of(timeout: float) -> float:
    """The part of ``timeout`` that one question to all servers may take."""
    return max(timeout / _STEPS, min(timeout, _SHORTEST_STEP))


class RedlockLeases:
    """``counter_ttl``: see ``packing.counter_ttl``."""

    def __init__(self, servers: Servers[Any], counter_ttl: int) -> None:
        self._servers = servers
        self._counter_ttl = counter_ttl

    # -- renewing --------------------------------------------------------------------------------------------------

    def renewal(self, attempts: Sequence[RedlockAttempt], ttl: float) -> Call:
        held = [(attempt.claim.name, attempt.owner) for attempt in attempts]
        return leases.encode_renew(held, ttl, self._counter_ttl)

    def renewed(
        self, attempts: Sequence[RedlockAttempt], ttl: float, replies: Sequence[Answer]
    ) -> tuple[list[Found | RequestFailed], Absent]:
        """What the servers' ``replies`` to ``renewal`` mean for each of ``attempts``, and which servers should join."""
        decoded = [
            reply if isinstance(reply, Exception) else leases.decode_renew(reply, len(attempts)) for reply in replies
        ]
        answers: list[Found | RequestFailed] = []
        absent: dict[int, list[RedlockAttempt]] = {}
        for at, attempt in enumerate(attempts):
            each = [reply if isinstance(reply, Exception) else reply[at] for reply in decoded]
            found = quorum.found(each, self._servers.quorum)
            if found is Found.OURS and ttl >= _SHORTEST_LEASE:
                for server, answer in enumerate(each):
                    if answer is Found.GONE:
                        absent.setdefault(server, []).append(attempt)
            answers.append(found or self._unrenewed(replies))
        return answers, absent

    def _unrenewed(self, replies: Sequence[Answer]) -> RequestFailed:
        failure = self._servers.too_few(failures(replies), may_have_happened=True)
        if isinstance(failure, RequestFailed):
            return failure
        # Retried until the lease expires: an ACL can be corrected, a lost lease cannot.
        again = RequestFailed(str(failure), may_have_happened=False)
        again.__cause__ = failure
        return again

    def joining(self, attempts: Iterable[RedlockAttempt], ttl: float) -> Call | None:
        """Have a server that was unreachable, or has lost its data, take part in leases that a majority has just
        confirmed. None: all were released meanwhile.

        Another thread may release a lock while a server joins in its lease. The server might then have a lock that no
        owner releases any more. So an attempt's token is removed before its release is sent. It is looked at here,
        before the request, and in ``undo_late_joins`` after it.
        """
        held = [(attempt, token) for attempt in attempts if (token := attempt.token) is not None]
        if not held:
            return None
        for attempt, _ in held:
            attempt.unresolved = True  # a late duplicate of this must not bring back what is released by then
        joins = [
            Joining(attempt.claim.name, attempt.owner, token, attempt.claim.tokens, attempt.claim.description)
            for attempt, token in held
        ]
        return encode_join(joins, ttl, self._counter_ttl)

    async def undo_late_joins(self, absent: Absent, timeout: float) -> None:
        """Release at servers that have joined what was released meanwhile."""
        for server, attempts in absent.items():
            for attempt in attempts:
                if attempt.token is None:
                    await self._servers.ask_some([server], release_call(attempt, tombstone=True), timeout)

    # -- withdrawing -----------------------------------------------------------------------------------------------

    async def withdraw_owner(
        self, attempt: RedlockAttempt, owner: str, timeout: float, *, everywhere: bool = False
    ) -> None:
        done = where_freed(attempt, owner)
        call = withdrawal(attempt, owner, "PUBLISH")
        answers = await self._servers.release(call, timeout, everywhere=everywhere, done=done)
        outcome = self.withdrawn(attempt, owner, answers)
        if isinstance(outcome, Exception):
            raise outcome

    def withdrawn(self, attempt: RedlockAttempt, owner: str, answers: Sequence[Answer]) -> Withdrawn:
        """From every server, not only from a majority: at any other the next claim would have to wait for the ttl. A
        server that has answered is not asked again: while another is unreachable, this is repeated."""
        note_freed(attempt, owner, answers)
        if any(isinstance(answer, RequestFailed) for answer in answers):
            return self._servers.failure(failures(answers), may_have_happened=True, name=attempt.claim.name)
        attempt.leftovers = tuple(each for each in attempt.leftovers if each != owner)
        return quorum.found([as_found(answer) for answer in answers], self._servers.quorum) or Found.GONE


def release_call(attempt: RedlockAttempt, *, tombstone: bool) -> Call:
    claim = attempt.claim
    lasts = leases.tombstone_for(claim.ttl) if tombstone else None
    return leases.encode_release(claim.name, attempt.owner, "PUBLISH", tombstone=lasts)


def where_freed(attempt: RedlockAttempt, owner: str) -> set[int]:
    return {server for freed, server in attempt.freed if freed == owner}


def note_freed(attempt: RedlockAttempt, owner: str, answers: Sequence[Answer]) -> None:
    attempt.freed |= {(owner, server) for server, answer in enumerate(answers) if not isinstance(answer, RequestFailed)}


def as_found(answer: Answer) -> Found | Exception:
    return answer if isinstance(answer, Exception) else leases.decode_release(answer)
