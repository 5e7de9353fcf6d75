"""Java processes with Redisson, one for each version and topology, shared by all tests; and others that a test may
freeze or kill."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Final

import pytest

import holdfast
from tests.interop.jvm import FAILED, Shared
from tests.interop.recording import Recorder
from tests.interop.redisson import VERSIONS, Java, build
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer

#: Of a Java process that is to be frozen or killed: its locks last for so long (s).
SHORT: Final = 6.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-results", action="store_true", help="store what is interoperable, see recording.py")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Older versions of Redisson run the essential tests. A test with such a version that is not essential is none."""
    items[:] = [
        item for item in items if _version(item) in (None, VERSIONS[-1]) or item.get_closest_marker("essential")
    ]


def _version(item: pytest.Item) -> str | None:
    version = item.callspec.params.get("redisson_jars") if hasattr(item, "callspec") else None
    assert version is None or isinstance(version, str)
    return version


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


# ---- Java


@pytest.fixture(scope="session", params=VERSIONS)
def redisson_jars(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(request.param, tmp_path_factory.mktemp("redisson"))


@pytest.fixture(scope="session")
def _shared_redisson(redisson_jars: str, _shared_redis: RedisServer) -> Iterator[Shared[Java]]:
    shared = Shared(lambda: Java(redisson_jars, _shared_redis))
    yield shared
    shared.close()


@pytest.fixture
def redisson(
    request: pytest.FixtureRequest, _shared_redisson: Shared[Java], redis_server: RedisServer
) -> Iterator[Java]:
    """Each test releases its locks."""
    yield from _shared_redisson.use(request.node)


@pytest.fixture(scope="session")
def _shared_redisson_of_cluster(redisson_jars: str, _shared_cluster: RedisCluster) -> Iterator[Shared[Java]]:
    shared = Shared(lambda: Java(redisson_jars, *_shared_cluster.nodes, topology="cluster"))
    yield shared
    shared.close()


@pytest.fixture
def redisson_of_cluster(
    request: pytest.FixtureRequest, _shared_redisson_of_cluster: Shared[Java], redis_cluster: RedisCluster
) -> Iterator[Java]:
    """Each test releases its locks."""
    yield from _shared_redisson_of_cluster.use(request.node)


@pytest.fixture
def victim(redisson_jars: str, redis_server: RedisServer) -> Iterator[Java]:
    """A process for this test alone, whose locks last ``SHORT`` seconds without renewal."""
    with Java(redisson_jars, redis_server, watchdog=SHORT) as java:
        yield java


# ---- Python


@pytest.fixture
def connect(redis_server: RedisServer) -> Iterator[Callable[..., holdfast.Client]]:
    """Clients in Python, closed at the end."""
    with ExitStack() as ending:
        yield lambda **options: ending.enter_context(holdfast.connect(redis_server.url, token_ttl=None, **options))


@pytest.fixture
def locks(connect: Callable[..., holdfast.Client]) -> holdfast.Client:
    return connect()


@pytest.fixture
def cluster_locks(redis_cluster: RedisCluster) -> Iterator[holdfast.Client]:
    with holdfast.connect(redis_cluster.url, token_ttl=None) as client:
        yield client
