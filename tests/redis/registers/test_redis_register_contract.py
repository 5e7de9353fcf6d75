"""The contract of registers, on one Redis server and on a cluster."""

from __future__ import annotations

import pytest

from tests.servers.cluster import RedisCluster
from tests.support.register_contract import APIS, CASES, Case, check, engine_at, name_of


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_contract(case: Case, api: str, redis_url: str) -> None:
    check(case, engine_at(redis_url), api)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_contract_in_a_cluster(case: Case, api: str, redis_cluster: RedisCluster) -> None:
    check(case, engine_at(redis_cluster.url), api)
