"""Which reason is reported to a holder: a lease that expired by itself was not broken."""

from __future__ import annotations

import uuid
from typing import Any, Final

import pytest

import holdfast
from tests.support.waiting import eventually

TTL: Final = 0.3


class Late:
    """A session whose renewals reach the engine only after the lease has expired there, as after a scheduler stall."""

    def __init__(self, session: Any, runtime: Any, delay: float) -> None:
        self._session = session
        self._runtime = runtime
        self._delay = delay

    async def renew(self, *request: Any) -> Any:
        await self._runtime.sleep_until(self._runtime.now() + self._delay)
        return await self._session.renew(*request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("asking", ["watchdog", "caller"])
def test_a_lease_gone_after_its_deadline_is_expired_and_not_broken(asking: str) -> None:
    """A renewal that is answered late finds nothing, because the lease expired meanwhile: no client broke it."""
    reasons: list[str | None] = []
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=TTL) as locks:
        locks.ping()
        core: Any = locks._opened
        watchdog = core.watchdog
        # If the caller is to get its answer first, the watchdog has to wait longer.
        watchdog._keeper = Late(watchdog._keeper, watchdog._runtime, 2 * TTL + (asking == "caller"))
        core.session = Late(core.session, core.front, 2 * TTL)
        lease = locks.lock("a", on_lost=lambda lost: reasons.append(lost.lost_reason)).acquire()
        if asking == "caller":
            with pytest.raises(holdfast.LockLost) as lost:
                lease.renew()
            assert lost.value.reason == "expired"
        eventually(lambda: reasons)
        assert reasons == ["expired"]
