"""Servers for tests, and the rule that no test is skipped in silence.

A skip is allowed only if ``tests/skips.toml`` lists it; any other skip fails the run. A test that needs a server
which is not installed is skipped loudly, by name; with CI=true it fails.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import tomllib
from collections.abc import Callable, Generator, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest

from tests.servers import redis as redis_servers
from tests.servers.redis import RedisServer

IN_CI: Final = os.environ.get("CI", "").lower() in ("1", "true", "yes")
NO_REDIS: Final = "redis-server is not on PATH"

_SKIPS: Final = tomllib.loads((Path(__file__).parent / "skips.toml").read_text("utf-8")).get("skip", [])
_REDIS_FIXTURES: Final = frozenset({"redis_server", "start_redis"})

_skipped: Final = pytest.StashKey[list[tuple[str, str]]]()
_servers: Final = pytest.StashKey[list[RedisServer]]()


# ---- Redis


@pytest.fixture(scope="session")
def _running_redis(pytestconfig: pytest.Config) -> Iterator[RedisServer]:
    with RedisServer() as server:
        pytestconfig.stash[_servers].append(server)
        yield server
        pytestconfig.stash[_servers].remove(server)


@pytest.fixture
def redis_server(_running_redis: RedisServer) -> RedisServer:
    """The session's Redis, empty at the start of each test. Tests that stop or freeze a server use ``start_redis``."""
    _running_redis.flush()
    return _running_redis


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def start_redis(pytestconfig: pytest.Config) -> Iterator[Callable[..., RedisServer]]:
    """``start_redis("maxmemory 3mb")``: a server for this test alone; arguments as for RedisServer."""
    started: list[RedisServer] = []

    def start(*config: str, **settings: Any) -> RedisServer:
        server = RedisServer(*config, **settings)
        started.append(server)
        pytestconfig.stash[_servers].append(server)
        return server.start()

    yield start
    for server in started:
        pytestconfig.stash[_servers].remove(server)
        server.close()


# ---- hooks


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_skipped] = []
    config.stash[_servers] = []


def pytest_report_header() -> list[str]:
    import holdfast

    return [f"holdfast: {Path(holdfast.__path__[0])}", f"redis-server: {redis_servers.BINARY or NO_REDIS}"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _REDIS_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("needs_redis")


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
    if redis_servers.BINARY is None and item.get_closest_marker("needs_redis"):
        if IN_CI:
            pytest.fail(f"{NO_REDIS}; with CI=true that is a failure", pytrace=False)
        pytest.skip(NO_REDIS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in item.config.stash[_servers]:
            report.sections.append((f"redis-server on port {server.port}", server.log()))
    if report.skipped and not hasattr(report, "wasxfail"):
        _note_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:  # a whole module: importorskip and the like
        _note_skip(collector.config, report)
    return report


def _note_skip(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    config.stash[_skipped].append((report.nodeid, reason.removeprefix("Skipped: ")))


def _listed(test: str, reason: str) -> bool:
    return any(fnmatchcase(test, entry["test"]) and fnmatchcase(reason, entry["reason"]) for entry in _SKIPS)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    unlisted = any(not _listed(*skip) for skip in session.config.stash[_skipped])
    if unlisted and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for title, listed in (("SKIPPED", True), ("SKIPPED, BUT NOT LISTED IN tests/skips.toml: FAILED", False)):
        skips = [skip for skip in config.stash[_skipped] if _listed(*skip) is listed]
        if skips:
            terminalreporter.section(f"{title} ({len(skips)})", yellow=listed, red=not listed)
            for test, reason in skips:
                terminalreporter.line(f"{test}: {reason}")
