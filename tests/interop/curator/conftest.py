"""One Java process shared by all tests; and others that a test may freeze or kill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

import holdfast
from tests.interop.curator import Java, build
from tests.interop.jvm import Shared
from tests.servers.ensemble import Ensemble
from tests.servers.zookeeper import ZooKeeperServer

#: The session time-out of a process that is to be frozen or killed (s).
SHORT: Final = 2.0
#: That of a process whose session survives an election.
LONG: Final = 20.0


@pytest.fixture(scope="session")
def curator_jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("curator"))


@pytest.fixture(scope="session")
def _shared_curator(curator_jars: str, _shared_zookeeper: ZooKeeperServer) -> Iterator[Shared[Java]]:
    shared = Shared(lambda: Java(curator_jars, _shared_zookeeper.address))
    yield shared
    shared.close()


@pytest.fixture
def java(
    request: pytest.FixtureRequest, _shared_curator: Shared[Java], zookeeper_server: ZooKeeperServer
) -> Iterator[Java]:
    """Each test releases its locks."""
    yield from _shared_curator.use(request.node)


@pytest.fixture
def victim(curator_jars: str, zookeeper_server: ZooKeeperServer) -> Iterator[Java]:
    """A process for this test alone, whose session ends after ``SHORT`` seconds without a message."""
    with Java(curator_jars, zookeeper_server.address, session=SHORT) as java:
        yield java


@pytest.fixture
def locks(zookeeper_server: ZooKeeperServer) -> Iterator[holdfast.Client]:
    with holdfast.connect(zookeeper_server.url, ttl=10) as client:
        yield client


# ---- on an ensemble


@pytest.fixture(scope="module")
def _shared_curator_of_three(curator_jars: str, _shared_ensemble: Ensemble) -> Iterator[Shared[Java]]:
    shared = Shared(lambda: Java(curator_jars, _shared_ensemble.hosts, session=LONG))
    yield shared
    shared.close()


@pytest.fixture
def java_of_three(
    request: pytest.FixtureRequest, _shared_curator_of_three: Shared[Java], ensemble: Ensemble
) -> Iterator[Java]:
    """A client of the ensemble."""
    yield from _shared_curator_of_three.use(request.node)


@pytest.fixture
def locks_of_three(ensemble: Ensemble) -> Iterator[holdfast.Client]:
    with holdfast.connect(ensemble.url, ttl=LONG, unavailable_after=30) as client:
        yield client
