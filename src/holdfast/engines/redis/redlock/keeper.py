"""Redlock for a client's watchdog: renewals and withdrawals in batches, each on all servers in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import ALL_NAMES, Found, RequestFailed, Suspects, Withdrawn
from holdfast.engines.redis.attempt import RedlockAttempt, withdrawal
from holdfast.engines.redis.connections.channel import KeeperChannel, close_all
from holdfast.engines.redis.connections.group import KeeperGroup
from holdfast.engines.redis.connections.in_flight import MOST_SCRIPTS
from holdfast.engines.redis.dialect.keys import is_side_key
from holdfast.engines.redis.dialect.leases import MOST_RENEWED
from holdfast.engines.redis.dialect.packing import counter_ttl
from holdfast.engines.redis.redlock.keeper_servers import KeeperServers
from holdfast.engines.redis.redlock.leases import RedlockLeases, step_of, where_freed

K = TypeVar("K", bound=KeeperChannel)


class RedlockKeeper(Generic[K]):
    """See :class:`holdfast.engines.base.Keeper`. ``labels`` name the servers in errors."""

    def __init__(
        self,
        group: KeeperGroup[K],
        channels: Sequence[K],
        labels: Sequence[str],
        runtime: Runtime,
        token_ttl: float | None,
    ) -> None:
        self._servers = KeeperServers(group, channels, labels, runtime)
        self._leases = RedlockLeases(self._servers, counter_ttl(token_ttl))

    async def renew(
        self, attempts: Sequence[RedlockAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        batches = [attempts[start : start + MOST_RENEWED] for start in range(0, len(attempts), MOST_RENEWED)]
        answers: list[Found | RequestFailed] = []
        for start in range(0, len(batches), MOST_SCRIPTS):
            answers += await self._renew(batches[start : start + MOST_SCRIPTS], ttl, timeout / 2)
        return answers

    async def _renew(
        self, batches: Sequence[Sequence[RedlockAttempt]], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        calls = [self._leases.renewal(batch, ttl) for batch in batches]
        answers: list[Found | RequestFailed] = []
        for batch, replies in zip(batches, await self._servers.ask_tracked(calls, timeout), strict=True):
            found, absent = self._leases.renewed(batch, ttl, replies)
            answers += found
            if absent:
                joins = {server: call for server, those in absent.items() if (call := self._leases.joining(those, ttl))}
                await self._servers.ask_each(joins, timeout)
                await self._leases.undo_late_joins(absent, timeout)
        return answers

    async def withdraw(self, attempts: Sequence[RedlockAttempt], timeout: float) -> Sequence[Withdrawn]:
        """All withdrawals together, in one buffer for each server. An unresponsive server costs a part of the timeout
        once, and is then skipped for a while; the withdrawals are done on the others nevertheless."""
        for attempt in attempts:
            attempt.token = None
        wanted = [(attempt, owner) for attempt in attempts for owner in (*attempt.leftovers, attempt.owner)]
        answers = await self._servers.release_all(
            [withdrawal(attempt, owner, "PUBLISH") for attempt, owner in wanted],
            [where_freed(attempt, owner) for attempt, owner in wanted],
            step_of(timeout),
        )
        found = {
            (attempt, owner): self._leases.withdrawn(attempt, owner, each)
            for (attempt, owner), each in zip(wanted, answers, strict=True)
        }
        lingers = RequestFailed("something of an earlier attempt could not be withdrawn", may_have_happened=True)
        return [lingers if attempt.leftovers else found[attempt, attempt.owner] for attempt in attempts]

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        suspects = await self._servers.wait_for_hints(until, wakeup)
        return suspects if suspects == ALL_NAMES else {key for key in suspects if not is_side_key(key)}

    async def close(self) -> None:
        await close_all(self._servers.channels)
