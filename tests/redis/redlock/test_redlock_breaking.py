"""break_ on several servers, one after the other, while the holder renews."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted
from holdfast.engines.redis import scripts
from holdfast.engines.redis.connections.blocking import BlockingChannel
from holdfast.engines.redis.connections.blocking_group import BlockingGroup
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.redlock import connect
from tests.redis.redlock.support import LONG_TIMEOUT, Proxies, owners
from tests.redis.support import make_attempt
from tests.servers.masters import Masters


def test_holder_that_renews_while_being_broken_does_not_regain_the_lock(
    five_masters: Masters, proxies: Proxies
) -> None:
    """The holder renews after its lock was broken on two servers: three servers confirm it, and it must not join the
    two again. Then the lock is broken on the third server, and the breaker cannot reach the last two. A break on three
    of five servers is reported as success, but after joining the holder would still have four."""
    holder = connect([f"redis://{server.address}" for server in five_masters.servers], {}).session(BLOCKING)
    breaker = connect([f"redis://{proxy.host}:{proxy.port}" for proxy in proxies], {}).session(BLOCKING)
    attempt = make_attempt("it", ttl=60)

    class Halfway(BlockingGroup):
        async def ask(self, channels: Sequence[BlockingChannel], call: Call, timeout: float) -> list[Answer]:
            if call.script is not scripts.BREAK:
                return await super().ask(channels, call, timeout)
            broken = await super().ask(channels[:2], call, timeout)
            assert await holder.renew(attempt, 60, LONG_TIMEOUT) == Found.OURS
            return broken + await super().ask(channels[2:], call, timeout)

    breaker._servers.group = Halfway()  # type: ignore[attr-defined]
    try:
        assert isinstance(run(holder.acquire(attempt, LONG_TIMEOUT)), Granted)
        for proxy in proxies[3:]:
            proxy.refuse()
        assert run(breaker.break_("it", LONG_TIMEOUT)) is True
        assert owners(five_masters, "it") == [None] * 3 + [attempt.owner] * 2
        assert run(holder.renew(attempt, 60, LONG_TIMEOUT)) == Found.GONE
    finally:
        run(holder.close())
        run(breaker.close())


def test_break_by_token_breaks_one_owner_also_where_its_token_was_not_raised(
    five_masters: Masters, proxies: Proxies
) -> None:
    """The second phase of the acquire has not reached one server, which has a smaller number."""
    session = connect([f"redis://{server.address}" for server in five_masters.servers], {}).session(BLOCKING)
    attempt = make_attempt("it", ttl=60)
    try:
        granted = run(session.acquire(attempt, LONG_TIMEOUT))
        assert isinstance(granted, Granted)
        behind, low = five_masters.servers[4], granted.token - 5
        metadata: str = behind.ask("GET", "holdfast_owner:{it}")
        behind.ask("SET", "holdfast_owner:{it}", metadata.replace(str(granted.token), str(low)), "PX", "60000")
        assert run(session.break_("it", LONG_TIMEOUT, low)) is False
        assert owners(five_masters, "it") == [attempt.owner] * 5
        assert run(session.break_("it", LONG_TIMEOUT, granted.token)) is True
        assert owners(five_masters, "it") == [None] * 5
    finally:
        run(session.close())


def test_break_by_token_works_with_an_unreachable_minority(five_masters: Masters, proxies: Proxies) -> None:
    holder = connect([f"redis://{server.address}" for server in five_masters.servers], {}).session(BLOCKING)
    breaker = connect([f"redis://{proxy.host}:{proxy.port}" for proxy in proxies], {}).session(BLOCKING)
    attempt = make_attempt("it", ttl=60)
    try:
        granted = run(holder.acquire(attempt, LONG_TIMEOUT))
        assert isinstance(granted, Granted)
        for proxy in proxies[3:]:
            proxy.refuse()
        assert run(breaker.break_("it", LONG_TIMEOUT, granted.token + 1)) is False
        assert run(breaker.break_("it", LONG_TIMEOUT, granted.token)) is True
        assert run(holder.renew(attempt, 60, LONG_TIMEOUT)) == Found.GONE
    finally:
        run(holder.close())
        run(breaker.close())
