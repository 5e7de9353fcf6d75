"""Batches on Redlock: withdrawals in one buffer per server, and callers that share the clock reading."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted, RequestFailed
from holdfast.engines.redis import scripts
from holdfast.engines.redis.attempt import RedlockAttempt
from holdfast.engines.redis.redlock import connect
from tests.redis.redlock.support import Proxies, has_tombstone
from tests.redis.support import TIMEOUT, keeper_of, make_attempt, on
from tests.servers.clock import Clock
from tests.servers.masters import Masters
from tests.support.clients import APIS

YEAR: Final = 365 * 86400.0
StartMasters = Callable[..., Masters]


def urls(masters: Masters) -> list[str]:
    return [server.url for server in masters.servers]


def held(masters: Masters, attempts: Sequence[RedlockAttempt]) -> int:
    """Returns the number of holds of ``claims``, summed over all servers."""
    return sum(int(server.ask("EXISTS", *(attempt.claim.name for attempt in attempts))) for server in masters.servers)


@APIS
def test_batch_is_withdrawn_on_all_servers_with_an_answer_for_each_claim(api: str, five_masters: Masters) -> None:
    async def body(session: Any) -> None:
        mine, theirs, never = ([make_attempt(f"{kind}-{number}") for number in range(20)] for kind in "mtn")
        others = [make_attempt(attempt.claim.name) for attempt in theirs]
        for attempt in (*mine, *others):
            assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        answers = await keeper_of(session).withdraw([*mine, *theirs, *never], TIMEOUT)
        assert answers == [Found.OURS] * 20 + [Found.STOLEN] * 20 + [Found.GONE] * 20
        assert held(five_masters, [*mine, *never]) == 0
        assert held(five_masters, others) == 100
        assert all(has_tombstone(server, mine[0].claim.name, mine[0].owner) for server in five_masters.servers)

    on(connect(urls(five_masters), {}), api, body)


def test_leftovers_of_earlier_attempts_are_withdrawn(five_masters: Masters) -> None:
    engine = connect(urls(five_masters), {})
    session, keeper = engine.session(BLOCKING), engine.keeper(BLOCKING)
    attempts = [make_attempt(f"job-{number}") for number in range(5)]
    for attempt in attempts:
        assert isinstance(run(session.acquire(attempt, TIMEOUT)), Granted)
        attempt.reissue(lingers=True)
    assert run(keeper.withdraw(attempts, TIMEOUT)) == [Found.GONE] * 5
    assert held(five_masters, attempts) == 0
    assert [attempt.leftovers for attempt in attempts] == [()] * 5
    run(session.close())
    run(keeper.close())


def test_batch_with_a_silent_server_ends_within_its_timeout(start_masters: StartMasters) -> None:
    """The other servers withdraw everything. Only the silent server is retried."""
    masters, timeout = start_masters(3), 4.0
    engine = connect(urls(masters), {})
    session, keeper = engine.session(BLOCKING), engine.keeper(BLOCKING)
    attempts = [make_attempt(f"job-{number}") for number in range(500)]
    for attempt in attempts:
        assert isinstance(run(session.acquire(attempt, TIMEOUT)), Granted)
    assert run(keeper.renew(attempts[:1], 30.0, TIMEOUT)) == [Found.OURS]  # opens the connections of the watchdog
    masters.servers[0].pause()
    began = time.monotonic()
    answers = run(keeper.withdraw(attempts, timeout))
    assert time.monotonic() - began < timeout
    assert all(isinstance(answer, RequestFailed) for answer in answers)
    for server in masters.servers[1:]:
        assert server.ask("EXISTS", *(attempt.claim.name for attempt in attempts)) == 0
    masters.servers[0].resume()
    keeper._leases._servers.health.skip_none()
    before = [server.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] for server in masters.servers]
    assert Found.GONE in set(run(keeper.withdraw(attempts, timeout)))
    assert held(masters, attempts) == 0
    after = [server.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] for server in masters.servers]
    assert after[1:] == before[1:], "servers that have answered are not asked again"
    run(session.close())
    run(keeper.close())


def test_batch_is_one_write_to_each_server(five_masters: Masters) -> None:
    """One after the other, a thousand cancelled acquires would block renewals by the watchdog for a thousand round
    trips."""

    def reads() -> list[int]:
        return [int(server.ask("INFO", "stats")["total_reads_processed"]) for server in five_masters.servers]

    keeper = connect(urls(five_masters), {}).keeper(BLOCKING)
    attempts = [make_attempt(f"job-{number}") for number in range(500)]
    assert run(keeper.withdraw(attempts[:1], TIMEOUT)) == [Found.GONE]
    before = reads()
    assert run(keeper.withdraw(attempts, TIMEOUT)) == [Found.GONE] * 500
    assert max(after - earlier for after, earlier in zip(reads(), before, strict=True)) < 100
    run(keeper.close())


def test_first_callers_share_one_reading_of_the_clocks(proxies: Proxies) -> None:
    asked: list[object] = []
    rules = [proxy.on(script=scripts.PING, times=None).delay(0.001) for proxy in proxies]

    async def main() -> None:
        session = connect([proxy.url for proxy in proxies], {}).session(AsyncioRuntime())
        attempts = [make_attempt(f"job-{number}") for number in range(100)]
        grants = await asyncio.gather(*(session.acquire(attempt, TIMEOUT) for attempt in attempts))
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
        attempt = make_attempt("job")
        granted = run(session.acquire(attempt, TIMEOUT))
        assert isinstance(granted, Granted)
        tokens.append(granted.token)
        assert run(session.release(attempt, TIMEOUT)) is Found.OURS
    assert abs(tokens[0] / 1e6 - time.time()) < 3600
    assert tokens == sorted(set(tokens))
    run(session.close())
