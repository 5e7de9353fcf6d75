"""The contract of registers, on ZooKeeper."""

from __future__ import annotations

import pytest

from tests.servers.zookeeper import ZooKeeperServer
from tests.support.register_contract import APIS, CASES, Case, check, engine_at, name_of


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_contract(case: Case, api: str, zookeeper_server: ZooKeeperServer) -> None:
    check(case, engine_at(zookeeper_server.url), api)
