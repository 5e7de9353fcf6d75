"""ZooKeeper's locks as the watchdog of one client uses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import Found, RequestFailed, SimpleAttempt, Suspects, Withdrawn
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.member import HubMember
from holdfast.engines.zookeeper.renewal import Renewal
from holdfast.engines.zookeeper.withdrawal import Withdrawal


class ZooKeeperKeeper(HubMember):
    """See :class:`holdfast.engines.base.Keeper`."""

    def __init__(self, hub: Hub, runtime: Runtime, base: str, current: Callable[[], Hub] | None = None) -> None:
        self._wakeup: Wakeup | None = None
        super().__init__(hub, runtime, base, current)

    async def renew(
        self, attempts: Sequence[SimpleAttempt], ttl: float, timeout: float
    ) -> Sequence[Found | RequestFailed]:
        self._reopen()
        return await Renewal(self._asker, timeout).run(attempts, ttl)

    async def withdraw(self, attempts: Sequence[SimpleAttempt], timeout: float) -> Sequence[Withdrawn]:
        self._reopen()
        return await Withdrawal(self._asker, self._line, timeout).run(attempts)

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        self._reopen()
        hints = self._hub.hints(wakeup)
        self._wakeup = wakeup
        if not hints:
            await wakeup.wait(until)
        suspects = set()
        while hints:  # others add to it meanwhile
            suspects.add(hints.pop())
        return suspects

    def _leave(self) -> tuple[int, ...] | None:
        self._closed = True
        if self._wakeup is not None:
            self._hub.no_more_hints(self._wakeup)
        return super()._leave()
