"""``redis://`` with the address of a replica: any first request reports it with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance.opening import Api
from tests.servers.replication import Replication
from tests.support.clients import APIS, LONG_TIMEOUT, open_clients
from tests.support.waiting import until

StartReplication = Callable[..., Replication]

FIRST: dict[str, Callable[[Any], Any]] = {
    "acquire": lambda locks: locks.lock("free").acquire(),
    "acquire what is held": lambda locks: locks.lock("held").acquire(),
    "ping": lambda locks: locks.ping(),
    "inspect": lambda locks: locks.inspect("held"),
}


@APIS
@pytest.mark.parametrize("request_", FIRST)
async def test_first_request_to_a_replica_is_refused_with_the_remedy(
    api: Api, request_: str, start_replication: StartReplication
) -> None:
    """Without the check of the role, held locks would be busy forever, and a ping would succeed."""
    pair = start_replication(1)
    async with open_clients(api) as ours:
        await ours.acquire(ours.connect(pair.url), "held")
        await until(lambda: pair.replicas[0].ask("EXISTS", "held"))
        locks = ours.connect(pair.replicas[0].url, unavailable_after=0.3, request_timeout=LONG_TIMEOUT)
        with pytest.raises(holdfast.EngineUnavailable, match=r"a replica, not the master.*redis\+sentinel://") as error:
            await ours.do(lambda: FIRST[request_](locks))
        assert f"127.0.0.1:{pair.replicas[0].port}" in str(error.value)
        assert not isinstance(error.value, holdfast.OutcomeUnknown)
