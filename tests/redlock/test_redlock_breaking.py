"""break_ on several servers, one after the other, while the holder renews."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted
from holdfast.engines.redis import scripts
from holdfast.engines.redis.blocking import BlockingChannel
from holdfast.engines.redis.blocking_fleet import BlockingFleet
from holdfast.engines.redis.channel import Answer
from holdfast.engines.redis.redlock import connect
from holdfast.engines.redis.requests import Call
from tests.redis_engine.support import make_claim
from tests.redlock.support import PATIENT, Proxies, owners
from tests.servers.masters import Masters


def test_a_holder_who_renews_while_he_is_being_broken_does_not_come_back(
    five_masters: Masters, proxies: Proxies
) -> None:
    """Two are broken when he renews: three confirm it, and he joins the two again. Then the third is broken, and the
    last two are out of the breaker's reach. Three of five said that they are broken, and he would have four."""
    holder = connect([f"redis://{server.address}" for server in five_masters.servers], {}).session(BLOCKING)
    breaker = connect([f"redis://{proxy.host}:{proxy.port}" for proxy in proxies], {}).session(BLOCKING)
    claim = make_claim("it", ttl=60)

    class Halfway(BlockingFleet):
        async def ask(self, channels: Sequence[BlockingChannel], call: Call, timeout: float) -> list[Answer]:
            if call.script is not scripts.BREAK:
                return await super().ask(channels, call, timeout)
            broken = await super().ask(channels[:2], call, timeout)
            assert await holder.renew([claim], 60, PATIENT) == [Found.OURS]
            return broken + await super().ask(channels[2:], call, timeout)

    breaker._servers.fleet = Halfway()  # type: ignore[attr-defined]
    try:
        assert isinstance(run(holder.acquire(claim, PATIENT)), Granted)
        for proxy in proxies[3:]:
            proxy.refuse()
        assert run(breaker.break_("it", PATIENT)) is True
        assert owners(five_masters, "it") == [None] * 3 + [claim.owner] * 2
        assert run(holder.renew([claim], 60, PATIENT)) == [Found.GONE]
    finally:
        run(holder.close())
        run(breaker.close())
