"""How often callers wake the watchdog's thread, which costs more than a lock."""

from __future__ import annotations

import pytest

import holdfast
from holdfast._runtime.blocking import BlockingWakeup
from holdfast.testing.proxy import FaultProxy
from tests.servers.redis import RedisServer

PAIRS = 20
#: Of an answer: a fifth of the time after which the watchdog looks at a new hold.
SLOW = 0.02


def test_holds_granted_by_slow_answers_do_not_wake_the_watchdog(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: each look was due a tenth of a second after its request was sent, which was before the watchdog was
    going to look by itself. With 1,000 tasks on one connection, one pair in 14 woke it."""
    woken = 0
    wake = BlockingWakeup.set

    def counting(self: BlockingWakeup) -> None:
        nonlocal woken
        woken += 1
        wake(self)

    with FaultProxy(redis_server.host, redis_server.port) as proxy, holdfast.connect(proxy.url) as locks:
        locks.lock("first").acquire().release()
        proxy.on("EVALSHA", times=None).delay(SLOW)
        monkeypatch.setattr(BlockingWakeup, "set", counting)
        for number in range(PAIRS):
            locks.lock(f"lock:{number}").acquire().release()
        monkeypatch.undo()
    assert woken <= PAIRS // 4
