"""Batches on Redlock: withdrawals in one buffer per server, and callers that share the clock reading."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Claim, Found, Granted, RequestFailed
from holdfast.engines.redis import scripts
from holdfast.engines.redis.redlock import connect
from tests.redis.redlock.support import Proxies, has_tombstone
from tests.redis.support import TIMEOUT, make_claim, on
from tests.servers.clock import Clock
from tests.servers.masters import Masters

YEAR: Final = 365 * 86400.0
COLOURS = pytest.mark.parametrize("colour", ["blocking", "asyncio"])
StartMasters = Callable[..., Masters]


def urls(masters: Masters) -> list[str]:
    return [server.url for server in masters.servers]


def held(masters: Masters, claims: Sequence[Claim]) -> int:
    """Returns the number of holds of ``claims``, summed over all servers."""
    return sum(int(server.ask("EXISTS", *(claim.name for claim in claims))) for server in masters.servers)


@COLOURS
def test_batch_is_withdrawn_on_all_servers_with_an_answer_for_each_claim(colour: str, five_masters: Masters) -> None:
    async def body(session: Any) -> None:
        mine, theirs, never = ([make_claim(f"{kind}-{number}") for number in range(20)] for kind in "mtn")
        others = [make_claim(claim.name) for claim in theirs]
        for claim in (*mine, *others):
            assert isinstance(await session.acquire(claim, TIMEOUT), Granted)
        answers = await session.withdraw([*mine, *theirs, *never], TIMEOUT)
        assert answers == [Found.OURS] * 20 + [Found.STOLEN] * 20 + [Found.GONE] * 20
        assert held(five_masters, [*mine, *never]) == 0
        assert held(five_masters, others) == 100
        assert all(has_tombstone(server, mine[0].name, mine[0].owner) for server in five_masters.servers)

    on(connect(urls(five_masters), {}), colour, body)


def test_leftovers_of_earlier_attempts_are_withdrawn(five_masters: Masters) -> None:
    session = connect(urls(five_masters), {}).session(BLOCKING)
    claims = [make_claim(f"job-{number}") for number in range(5)]
    for claim in claims:
        assert isinstance(run(session.acquire(claim, TIMEOUT)), Granted)
        claim.reissue(lingers=True)
    assert run(session.withdraw(claims, TIMEOUT)) == [Found.GONE] * 5
    assert held(five_masters, claims) == 0
    assert [claim.remains for claim in claims] == [()] * 5
    run(session.close())


def test_batch_with_a_silent_server_ends_within_its_timeout(start_masters: StartMasters) -> None:
    """The other servers withdraw everything. Only the silent server is retried."""
    masters, timeout = start_masters(3), 4.0
    session: Any = connect(urls(masters), {}).session(BLOCKING)
    claims = [make_claim(f"job-{number}") for number in range(500)]
    for claim in claims:
        assert isinstance(run(session.acquire(claim, TIMEOUT)), Granted)
    assert run(session.renew(claims[:1], 30.0, TIMEOUT)) == [Found.OURS]  # opens the connections of the watchdog
    masters.servers[0].pause()
    began = time.monotonic()
    answers = run(session.withdraw(claims, timeout))
    assert time.monotonic() - began < timeout
    assert all(isinstance(answer, RequestFailed) for answer in answers)
    for server in masters.servers[1:]:
        assert server.ask("EXISTS", *(claim.name for claim in claims)) == 0
    masters.servers[0].resume()
    session._servers.health.spare_nobody()
    before = [server.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] for server in masters.servers]
    assert Found.GONE in set(run(session.withdraw(claims, timeout)))
    assert held(masters, claims) == 0
    after = [server.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] for server in masters.servers]
    assert after[1:] == before[1:], "servers that have answered are not asked again"
    run(session.close())


def test_batch_is_one_write_to_each_server(five_masters: Masters) -> None:
    """One after the other, a thousand cancelled acquires would block renewals by the watchdog for a thousand round
    trips."""

    def reads() -> list[int]:
        return [int(server.ask("INFO", "stats")["total_reads_processed"]) for server in five_masters.servers]

    session = connect(urls(five_masters), {}).session(BLOCKING)
    claims = [make_claim(f"job-{number}") for number in range(500)]
    assert run(session.withdraw(claims[:1], TIMEOUT)) == [Found.GONE]
    before = reads()
    assert run(session.withdraw(claims, TIMEOUT)) == [Found.GONE] * 500
    assert max(after - earlier for after, earlier in zip(reads(), before, strict=True)) < 100
    run(session.close())


def test_first_callers_share_one_reading_of_the_clocks(proxies: Proxies) -> None:
    asked: list[object] = []
    rules = [proxy.on(script=scripts.PING, times=None).delay(0.001) for proxy in proxies]

    async def main() -> None:
        session = connect([proxy.url for proxy in proxies], {}).session(AsyncioRuntime())
        claims = [make_claim(f"job-{number}") for number in range(100)]
        grants = await asyncio.gather(*(session.acquire(claim, TIMEOUT) for claim in claims))
        assert all(isinstance(grant, Granted) for grant in grants)
        for rule in rules:
            asked.extend(rule.hits)
        await session.close()

    asyncio.run(main())
    # Up to three times if the answers are late, and once more where the script was not known.
    assert len(asked) <= 5 * 3 * 2


def test_one_server_a_year_ahead_and_one_down_do_not_move_the_token(
    start_masters: StartMasters, server_clock: Clock
) -> None:
    """Regression: the median of two answers was the wrong one. With a lost counter, tokens would be smaller for a
    year."""
    masters = start_masters(3, clocks={0: server_clock})
    server_clock.move(YEAR)
    masters.servers[2].stop()
    session = connect(urls(masters), {}).session(BLOCKING)
    tokens = []
    for _ in range(3):
        claim = make_claim("job")
        granted = run(session.acquire(claim, TIMEOUT))
        assert isinstance(granted, Granted)
        tokens.append(granted.token)
        assert run(session.release(claim, TIMEOUT)) is Found.OURS
    assert abs(tokens[0] / 1e6 - time.time()) < 3600
    assert tokens == sorted(set(tokens))
    run(session.close())
