"""Servers for tests. A test whose server is not installed is skipped loudly, by name; with CI=true it fails."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import signal
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

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
from tests.servers.process import ServerProcess
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.servers.sentinel import SentinelSet
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.support.leaks import close_open_clients
from tests.support.longest import put_longest_first
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

T = TypeVar("T", bound=ServerProcess | Group[Any])

# How long one example takes depends on the machine more than on the code.
hypothesis.settings.register_profile("holdfast", deadline=None)
hypothesis.settings.load_profile("holdfast")

_running: Final = pytest.StashKey[list[ServerProcess | Group[Any]]]()


@pytest.fixture(autouse=True)
def _no_watchdog_meets_a_bug(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A watchdog goes on after a bug, so no test would notice; it may also be the watchdog of an earlier test."""
    yield
    if request.node.get_closest_marker("watchdog_bug") is None:
        bugs = [record for record in caplog.get_records("call") if "met a bug" in record.getMessage()]
        assert not bugs, logging.Formatter().format(bugs[0])


@pytest.fixture(autouse=True, scope="module")
def _no_client_outlives_its_module() -> Iterator[None]:
    """Module-level functions, locks with a timeout and blocks of documents keep their clients open. Their threads would
    be counted as leaks by later tests."""
    yield
    close_open_clients()


@pytest.fixture(autouse=True, scope="module")
def _no_collection_goes_through_what_earlier_modules_imported() -> None:
    """As at the end of the collection of tests. Some tests collect garbage at each of hundreds of steps: with Django
    and SQLAlchemy imported by an earlier module, each time would take a quarter of a second."""
    gc.collect()
    gc.freeze()


# ---- starting servers


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


def _starting(make: Callable[..., T]) -> Any:
    """A fixture: a function that makes and starts one for this test alone; arguments as for ``make``."""

    @pytest.fixture
    def starting(pytestconfig: pytest.Config) -> Iterator[Callable[..., T]]:
        with _starter(pytestconfig) as start:
            yield lambda *arguments, **settings: start(make(*arguments, **settings))

    return starting


def _shared(make: Callable[[], T], scope: Literal["session", "module"]) -> Any:
    """A fixture: one that all tests of the session or module share."""

    @pytest.fixture(scope=scope)
    def shared(pytestconfig: pytest.Config) -> Iterator[T]:
        with _starter(pytestconfig) as start:
            yield start(make())

    return shared


start_redis = _starting(RedisServer)  # start_redis("maxmemory 3mb")
start_replication = _starting(Replication)  # start_replication(2): a master and two replicas
start_sentinels = _starting(SentinelSet)  # start_sentinels(password="pw")
start_cluster = _starting(RedisCluster)
start_masters = _starting(Masters)  # start_masters(5)
start_zookeeper = _starting(ZooKeeperServer)  # start_zookeeper(tick=0.5)
start_ensemble = _starting(Ensemble)  # start_ensemble(sync_limit=60)

_shared_redis = _shared(RedisServer, "session")
# No node is killed here, and a node that a busy machine holds up for a second must not be taken for dead.
_shared_cluster = _shared(lambda: RedisCluster(node_timeout=5.0), "session")
_shared_masters = _shared(lambda: Masters(5), "module")
_shared_zookeeper = _shared(ZooKeeperServer, "session")
_shared_ensemble = _shared(Ensemble, "module")
_shared_postgres = _shared(PostgresServer, "session")


# ---- servers that tests share


@pytest.fixture
def redis_server(_shared_redis: RedisServer) -> RedisServer:
    """The session's Redis, empty at the start of each test. Tests that stop or freeze a server use ``start_redis``."""
    _shared_redis.flush()
    return _shared_redis


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def sentinel_set(start_sentinels: Callable[..., SentinelSet]) -> SentinelSet:
    """A master, two replicas and three sentinels for this test alone, which may kill any of them."""
    return start_sentinels()


@pytest.fixture
def redis_cluster(_shared_cluster: RedisCluster) -> RedisCluster:
    """The session's cluster, empty at the start of each test. Slots may be migrated, all the way; tests that stop,
    freeze or kill a node or leave a slot half-way use ``start_cluster``."""
    if not _shared_cluster.flush_if_ok():
        _shared_cluster.wait_until_ok()
        _shared_cluster.flush()
    return _shared_cluster


@pytest.fixture
def five_masters(_shared_masters: Masters) -> Masters:
    """The module's five masters, empty at the start of each test. Tests that stop one use ``start_masters``."""
    _shared_masters.flush()
    return _shared_masters


@pytest.fixture
def zookeeper_server(_shared_zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    """The session's ZooKeeper, empty at the start of each test. Tests that stop or freeze it: ``start_zookeeper``."""
    _shared_zookeeper.flush()
    yield _shared_zookeeper
    _shared_zookeeper.close_clients()


@pytest.fixture
def ensemble(_shared_ensemble: Ensemble) -> Iterator[Ensemble]:
    """The module's ensemble, whole and empty at the start of each test, which may kill, freeze and cut any member."""
    _shared_ensemble.recover()
    _shared_ensemble.flush()
    yield _shared_ensemble
    _shared_ensemble.resume()  # a client that closes waits for the server's answer
    _shared_ensemble.close_clients()


@pytest.fixture
def postgres_server(_shared_postgres: PostgresServer) -> PostgresServer:
    """The session's PostgreSQL, without tables and other sessions at the start of each test."""
    _shared_postgres.clear()
    return _shared_postgres


@pytest.fixture
def zookeeper_proxy(zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperProxy]:
    """In front of the session's ZooKeeper."""
    with ZooKeeperProxy(zookeeper_server.host, zookeeper_server.port) as proxy:
        yield proxy


# ---- other fixtures


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each of the engines that need no servers but one Redis."""
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    return f"memory:{uuid.uuid4().hex}" if request.param == "memory" else f"sqlite:{tmp_path / 'locks.db'}"


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter for a lock on Redis is woken, or waits for a minute: on a busy machine a waiter that polls twice a
    second looks like one that was woken."""
    monkeypatch.setattr("holdfast._core.acquisition._LONGEST_WAIT", 60.0)
    monkeypatch.setattr("holdfast.engines.redis.waiting.contender._LOOK_AGAIN", 120.0)


@pytest.fixture
def no_warnings_of_dropped_objects() -> Iterator[None]:
    """For tests that interrupt: leases and sockets, and coroutines before their first step, are dropped on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
        gc.collect()


@pytest.fixture(scope="session")
def clock_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def server_clock(clock_shim: Path, tmp_path: Path) -> Iterator[Clock]:
    """``start_redis(clock=server_clock)``: a server whose wall clock the test moves."""
    moved = Clock(clock_shim, tmp_path)
    yield moved
    moved.close()


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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of the few tests with a marker of `make test` does not import all others."""
    marker = config.option.markexpr.partition(" ")[0]
    if marker not in ("alone", "busy") or not collection_path.match("test_*.py"):
        return None
    is_busy = marker == "busy" and _SIMULATION in collection_path.parents
    return None if is_busy or f"mark.{marker}" in collection_path.read_text("utf-8") else True


def pytest_collection() -> None:
    """No collections of garbage while tests are collected, by each of the processes that share them: they would take
    as long as all the rest of it."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    simulations = {path for path in {item.path for item in items} if _SIMULATION in path.parents}
    for item in items:
        if item.path in simulations:
            item.add_marker("busy")
        fixtures = set(getattr(item, "fixturenames", ()))
        if _REDIS_FIXTURES & fixtures:
            item.add_marker("needs_redis")
        if _ZOOKEEPER_FIXTURES & fixtures:
            item.add_marker("needs_zookeeper")
        if _POSTGRES_FIXTURES & fixtures:
            item.add_marker("needs_postgres")
    put_longest_first(items)


def pytest_collection_finish() -> None:
    """Exempt everything collected from garbage collection. A collection in a test would otherwise go through thousands
    of tests, for longer than some leases live."""
    gc.enable()
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
            servers, lines = (what.servers, 15) if isinstance(what, Group) else ([what], 40)
            for server in servers:
                report.sections.append((f"{server.program} on port {server.port}", server.log(lines)))
    return report
