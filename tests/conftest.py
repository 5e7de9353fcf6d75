"""Servers for tests. A test whose server is not installed is skipped loudly, by name; with CI=true it fails."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import hypothesis
import pytest

from tests.servers import clock
from tests.servers import postgres as postgres_servers
from tests.servers import redis as redis_servers
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.clock import Clock, compile_shim
from tests.servers.cluster import RedisCluster
from tests.servers.ensemble import Ensemble
from tests.servers.group import Group
from tests.servers.masters import Masters
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.servers.sentinel import SentinelSet
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.skipping import Skips

IN_CI: Final = os.environ.get("CI", "").lower() in ("1", "true", "yes")
NO_REDIS: Final = "redis-server is not on PATH"
NO_COMPILER: Final = "no C compiler is on PATH"
NO_ZOOKEEPER: Final = zookeeper_servers.missing()
NO_POSTGRES: Final = postgres_servers.missing()

_REDIS_FIXTURES: Final = frozenset(
    {
        "redis_server", "start_redis", "start_replication", "sentinel_set", "start_sentinels",
        "redis_cluster", "start_cluster", "five_masters", "start_masters",
    }
)  # fmt: skip
_SIMULATION: Final = Path(__file__).parent / "simulation"
_ZOOKEEPER_FIXTURES: Final = frozenset({"zookeeper_server", "start_zookeeper", "ensemble", "start_ensemble"})
_POSTGRES_FIXTURES: Final = frozenset({"postgres_server"})

AnyServer: TypeAlias = RedisServer | Group | ZooKeeperServer | Ensemble | PostgresServer
T = TypeVar("T", bound=AnyServer)

# How long one example takes says more about the machine than about the code.
hypothesis.settings.register_profile("holdfast", deadline=None)
hypothesis.settings.load_profile("holdfast")

_running: Final = pytest.StashKey[list[AnyServer]]()


@pytest.fixture(autouse=True)
def _no_watchdog_meets_a_bug(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """It goes on after one, so no test would notice, not even if it is the watchdog of a test before."""
    yield
    if request.node.get_closest_marker("watchdog_bug") is None:
        bugs = [record for record in caplog.get_records("call") if "met a bug" in record.getMessage()]
        assert not bugs, logging.Formatter().format(bugs[0])


# ---- Redis, one server


@pytest.fixture(scope="session")
def _shared_redis(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    with _starter(pytestconfig) as start:
        yield start(RedisServer())


@pytest.fixture
def redis_server(_shared_redis: RedisServer) -> RedisServer:
    """The session's Redis, empty at the start of each test. Tests that stop or freeze a server use ``start_redis``."""
    _shared_redis.flush()
    return _shared_redis


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a lock on Redis is woken, or waits for a minute: one who looks for himself, twice a second, is hard
    to tell from one who was woken on a busy machine."""
    monkeypatch.setattr("holdfast._core.acquisition._LONGEST_WAIT", 60.0)
    monkeypatch.setattr("holdfast.engines.redis.waiting.contender._LOOK_AGAIN", 120.0)


@pytest.fixture
def start_redis(pytestconfig: pytest.Config) -> Iterator[Callable[..., RedisServer]]:
    """``start_redis("maxmemory 3mb")``: a server for this test alone; arguments as for RedisServer."""
    with _starter(pytestconfig) as start:
        yield lambda *config, **settings: start(RedisServer(*config, **settings))


# ---- Redis, several servers


@pytest.fixture
def start_replication(pytestconfig: pytest.Config) -> Iterator[Callable[..., Replication]]:
    """``start_replication(2)``: a master and its replicas for this test alone; arguments as for Replication."""
    with _starter(pytestconfig) as start:
        yield lambda replicas, *config, **settings: start(Replication(replicas, *config, **settings))


@pytest.fixture
def start_sentinels(pytestconfig: pytest.Config) -> Iterator[Callable[..., SentinelSet]]:
    """``start_sentinels(password="pw")``: a set for this test alone; arguments as for SentinelSet."""
    with _starter(pytestconfig) as start:
        yield lambda *config, **settings: start(SentinelSet(*config, **settings))


@pytest.fixture
def sentinel_set(start_sentinels: Callable[..., SentinelSet]) -> SentinelSet:
    """A master, two replicas and three sentinels for this test alone, who may kill what it likes."""
    return start_sentinels()


@pytest.fixture(scope="session")
def _shared_cluster(pytestconfig: pytest.Config) -> Iterator[RedisCluster]:
    with _starter(pytestconfig) as start:
        # Nobody is killed here. A node that a busy machine holds up for a second is not to be taken for dead.
        yield start(RedisCluster(node_timeout=5.0))


@pytest.fixture
def redis_cluster(_shared_cluster: RedisCluster) -> RedisCluster:
    """The session's cluster, empty at the start of each test. Slots may be migrated, all the way; tests that stop,
    freeze or kill a node or leave a slot half-way use ``start_cluster``."""
    _shared_cluster.wait_until_ok()
    _shared_cluster.flush()
    return _shared_cluster


@pytest.fixture
def start_cluster(pytestconfig: pytest.Config) -> Iterator[Callable[..., RedisCluster]]:
    """``start_cluster()``: a cluster for this test alone; arguments as for RedisCluster."""
    with _starter(pytestconfig) as start:
        yield lambda *config, **settings: start(RedisCluster(*config, **settings))


@pytest.fixture(scope="module")
def _shared_masters(pytestconfig: pytest.Config) -> Iterator[Masters]:
    with _starter(pytestconfig) as start:
        yield start(Masters(5))


@pytest.fixture
def five_masters(_shared_masters: Masters) -> Masters:
    """The module's five masters, empty at the start of each test. Tests that stop one use ``start_masters``."""
    _shared_masters.flush()
    return _shared_masters


@pytest.fixture
def start_masters(pytestconfig: pytest.Config) -> Iterator[Callable[..., Masters]]:
    """``start_masters(5)``: masters for this test alone; arguments as for Masters."""
    with _starter(pytestconfig) as start:
        yield lambda count, *config, **settings: start(Masters(count, *config, **settings))


@pytest.fixture(scope="session")
def clock_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def server_clock(clock_shim: Path, tmp_path: Path) -> Iterator[Clock]:
    """``start_redis(clock=server_clock)``: a server whose wall clock the test moves."""
    moved = Clock(clock_shim, tmp_path)
    yield moved
    moved.close()


# ---- ZooKeeper


@pytest.fixture(scope="session")
def _shared_zookeeper(pytestconfig: pytest.Config) -> Iterator[ZooKeeperServer]:
    with _starter(pytestconfig) as start:
        yield start(ZooKeeperServer())


@pytest.fixture
def zookeeper_server(_shared_zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    """The session's ZooKeeper, empty at the start of each test. Tests that stop or freeze it: ``start_zookeeper``."""
    _shared_zookeeper.flush()
    yield _shared_zookeeper
    _shared_zookeeper.close_clients()


@pytest.fixture
def start_zookeeper(pytestconfig: pytest.Config) -> Iterator[Callable[..., ZooKeeperServer]]:
    """``start_zookeeper(tick=0.5)``: a server for this test alone; arguments as for ZooKeeperServer."""
    with _starter(pytestconfig) as start:
        yield lambda *config, **settings: start(ZooKeeperServer(*config, **settings))


@pytest.fixture(scope="module")
def _shared_ensemble(pytestconfig: pytest.Config) -> Iterator[Ensemble]:
    with _starter(pytestconfig) as start:
        yield start(Ensemble())


@pytest.fixture
def ensemble(_shared_ensemble: Ensemble) -> Iterator[Ensemble]:
    """The module's ensemble, whole and empty at the start of each test, who may kill, freeze and cut what it likes."""
    _shared_ensemble.recover()
    _shared_ensemble.flush()
    yield _shared_ensemble
    _shared_ensemble.resume()  # a client waits for the answer to its farewell
    _shared_ensemble.close_clients()


@pytest.fixture
def start_ensemble(pytestconfig: pytest.Config) -> Iterator[Callable[..., Ensemble]]:
    """``start_ensemble(sync_limit=60)``: an ensemble for this test alone; arguments as for Ensemble."""
    with _starter(pytestconfig) as start:
        yield lambda *config, **settings: start(Ensemble(*config, **settings))


# ---- PostgreSQL


@pytest.fixture(scope="session")
def _shared_postgres(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    with _starter(pytestconfig) as start:
        yield start(PostgresServer())


@pytest.fixture
def postgres_server(_shared_postgres: PostgresServer) -> PostgresServer:
    """The session's PostgreSQL, without tables and other sessions at the start of each test."""
    _shared_postgres.clear()
    return _shared_postgres


# ---- all of them


@contextmanager
def _starter(config: pytest.Config) -> Iterator[Callable[[T], T]]:
    """Starts servers and groups; all end with the block. While they run, their logs are in reports of failures."""
    running = config.stash[_running]
    with ExitStack() as ending:

        def start(what: T) -> T:
            ending.callback(what.close)
            ending.callback(running.remove, what)
            running.append(what)
            what.start()
            return what

        yield start


# ---- hooks


def _restore_signals() -> None:
    """Have the processes of tests start with these as a terminal would have them.

    What starts the tests may ignore them (nohup, a job in the background), and ignored signals are inherited.
    """
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_configure(config: pytest.Config) -> None:
    _restore_signals()
    config.stash[_running] = []
    config.pluginmanager.register(Skips())


def pytest_report_header() -> list[str]:
    import holdfast

    return [
        f"holdfast: {Path(holdfast.__path__[0])}",
        f"redis-server: {redis_servers.BINARY or NO_REDIS}",
        f"C compiler: {clock.COMPILER or NO_COMPILER}",
        f"ZooKeeper: {NO_ZOOKEEPER or zookeeper_servers.JAVA}",
        f"PostgreSQL: {NO_POSTGRES or postgres_servers.PROGRAMS}",
    ]


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _SIMULATION in item.path.parents:
            item.add_marker("busy")
        fixtures = set(getattr(item, "fixturenames", ()))
        if _REDIS_FIXTURES & fixtures:
            item.add_marker("needs_redis")
        if _ZOOKEEPER_FIXTURES & fixtures:
            item.add_marker("needs_zookeeper")
        if _POSTGRES_FIXTURES & fixtures:
            item.add_marker("needs_postgres")


def pytest_collection_finish() -> None:
    """What is there now stays till the end. Else each collection of garbage in a test would go through thousands of
    tests, for longer than some leases live."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """``async def`` tests run in an event loop of their own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(tryfirst=True)  # before any fixture tries to start what is not there
def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = None
    if redis_servers.BINARY is None and item.get_closest_marker("needs_redis"):
        missing = NO_REDIS
    elif clock.COMPILER is None and "clock_shim" in getattr(item, "fixturenames", ()):
        missing = NO_COMPILER
    elif NO_ZOOKEEPER and item.get_closest_marker("needs_zookeeper"):
        missing = NO_ZOOKEEPER
    elif NO_POSTGRES and item.get_closest_marker("needs_postgres"):
        missing = NO_POSTGRES
    if missing and IN_CI:
        pytest.fail(f"{missing}; with CI=true that is a failure", pytrace=False)
    elif missing:
        pytest.skip(missing)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for what in item.config.stash[_running]:
            servers, lines = (what.servers, 15) if isinstance(what, Group | Ensemble) else ([what], 40)
            for server in servers:
                report.sections.append((f"{server.program} on port {server.port}", server.log(lines)))
    return report
