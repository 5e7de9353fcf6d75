"""A password in the URL appears in no repr, log, error, cause or traceback."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError

import holdfast
from holdfast._config.targets import parse_target
from tests.servers.redis import RedisServer
from tests.servers.zookeeper import ZooKeeperServer

SECRET = "s3cr3t-p4ss"


def texts(error: BaseException) -> str:
    """Returns everything that a log or a crash report would show, including attributes."""
    chain = "".join(traceback.format_exception(error))
    return chain + repr(error) + str(vars(error)) + repr(pickle.loads(pickle.dumps(error)))


def failing(act: Callable[[], Any]) -> str:
    with pytest.raises((holdfast.LockError, ValueError, TypeError)) as caught:
        act()
    return texts(caught.value)


def test_no_secret_is_shown_in_any_failure(
    start_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = start_redis(password=SECRET)
    good = f"redis://:{SECRET}@127.0.0.1:{server.port}"
    shown = ""
    with holdfast.connect(good, unavailable_after=0.3) as locks:
        lock = locks.lock("a")
        with lock as lease:
            shown += "".join(map(repr, (locks, lock, lease, lease.lost, locks.inspect("a"), locks.guarantees)))
        server.client().set("string", 1)
        shown += failing(locks.lock("string").acquire)
        shown += failing(lambda: pickle.dumps(locks)) + failing(lambda: pickle.dumps(lock))
        server.kill()
        shown += failing(lambda: locks.lock("b").acquire(timeout=1)) + failing(locks.ping)
    for url in (
        good + "?nonsense=1",
        good + "?ttl=abc",
        f"redsi://:{SECRET}@h",
        f"redis://user:{SECRET}@h:notaport",
        f"redis://:{SECRET}@127.0.0.1:1/x/y?db=z",
        f"redlock://:{SECRET}@h1,h2,h1",
        f"redlock://:{SECRET}@h1,:{SECRET}@h2",
        f"redis+cluster://:{SECRET}@h1,h2/1",
        f"redis+cluster://:{SECRET}/1@h1,h2",
        f"redis+sentinel://:{SECRET}@h1,h2",
        f"redis+sentinel://h1,h2/m/x?sentinel_password={SECRET}",
        f"zookeeper://:{SECRET}@h1,h2",
        f"zookeeper://joe:1/{SECRET}@h1,h2/base",
        f"zookeeper://joe:1?{SECRET}=1@h1,h2/base",
        f"zookeeper://joe:{SECRET}@h1,h2/zookeeper",
        f"zookeeper://h1,h2?sasl_mechanism={SECRET}&sasl_password={SECRET}",
        f"zookeeper://h1,h2?keyfile_password={SECRET}",
    ):
        shown += failing(lambda url=url: holdfast.connect(url).ping())  # type: ignore[misc]
    with holdfast.connect(f"redis://:{SECRET}x@127.0.0.1:{server.restart().port}") as locks:
        shown += failing(locks.ping)
    assert SECRET not in shown
    assert SECRET not in caplog.text


def test_password_given_as_a_keyword_is_not_shown(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis(password=SECRET)
    url = f"redis://127.0.0.1:{server.port}"
    with holdfast.connect(url, password=SECRET) as locks:
        locks.ping()
        assert SECRET not in repr(locks) + repr(vars(locks))
    assert SECRET not in failing(lambda: holdfast.connect(url, password=SECRET, nonsense=1))  # type: ignore[call-arg]


@pytest.mark.parametrize("scheme, path", [("redis+sentinel", "/m"), ("redis+cluster", ""), ("redlock", "")])
def test_password_for_several_servers_is_not_shown(
    start_redis: Callable[..., RedisServer], scheme: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """First one server refuses the password and two are unreachable; then all are unreachable."""
    caplog.set_level(logging.DEBUG)
    server = start_redis(password="another")
    url = f"{scheme}://joe:{SECRET}@127.0.0.1:{server.port},127.0.0.1:1,127.0.0.1:2{path}"
    secrets: dict[str, Any] = {"sentinel_password": SECRET} if scheme == "redis+sentinel" else {}
    target = parse_target(url, secrets)
    shown = repr(target) + f"{target}"
    with holdfast.connect(url, unavailable_after=0.3, **secrets) as locks:
        shown += repr(locks) + repr(vars(locks)) + repr(locks.lock("a")) + repr(locks.guarantees)
        shown += failing(locks.ping) + failing(lambda: locks.lock("a").acquire(timeout=1))
        server.kill()
        shown += failing(locks.ping) + failing(lambda: locks.lock("a").acquire(timeout=1))
    assert SECRET not in shown
    assert SECRET not in caplog.text


def test_password_for_zookeeper_is_not_shown(
    start_zookeeper: Callable[..., ZooKeeperServer], caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo logs its requests, and one of them contains the password."""
    caplog.set_level(logging.DEBUG)
    server = start_zookeeper()
    url = f"zookeeper://joe:{SECRET}@{server.address}/base"
    target = parse_target(url, {"auth_data": [("digest", f"ann:{SECRET}")]})
    shown = repr(target) + f"{target}" + repr(target.engine_options)
    with holdfast.connect(url, unavailable_after=1.5, ttl=2, auth_data=[("digest", f"ann:{SECRET}")]) as locks:
        lock = locks.lock("a")
        with lock as lease:
            shown += "".join(map(repr, (locks, vars(locks), lock, lease, locks.inspect("a"), locks.guarantees)))
            with pytest.raises(NoAuthError):  # the credentials were used: the nodes are closed to other users
                server.client().get_children("/base/a")
        server.kill()
        shown += failing(lambda: locks.lock("b").acquire(timeout=0.3)) + failing(locks.ping)
    assert SECRET not in shown
    assert "digest" in caplog.text  # the request was logged,
    assert SECRET not in caplog.text  # but without the password
