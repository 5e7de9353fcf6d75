"""A password in the URL is in no repr, log, error, cause or traceback."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from tests.servers.redis import RedisServer

SECRET = "s3cr3t-p4ss"


def texts(error: BaseException) -> str:
    """All that a log or a crash report would show, attributes included."""
    chain = "".join(traceback.format_exception(error))
    return chain + repr(error) + str(vars(error)) + repr(pickle.loads(pickle.dumps(error)))


def failing(act: Callable[[], Any]) -> str:
    with pytest.raises((holdfast.LockError, ValueError, TypeError)) as caught:
        act()
    return texts(caught.value)


def test_no_secret_is_shown_whatever_goes_wrong(
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
        f"redlock://:{SECRET}@h1,h2,h3",
    ):
        shown += failing(lambda url=url: holdfast.connect(url).ping())  # type: ignore[misc]
    with holdfast.connect(f"redis://:{SECRET}x@127.0.0.1:{server.restart().port}") as locks:
        shown += failing(locks.ping)
    assert SECRET not in shown
    assert SECRET not in caplog.text


def test_a_password_given_as_a_keyword_is_not_shown_either(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis(password=SECRET)
    url = f"redis://127.0.0.1:{server.port}"
    with holdfast.connect(url, password=SECRET) as locks:
        locks.ping()
        assert SECRET not in repr(locks) + repr(vars(locks))
    assert SECRET not in failing(lambda: holdfast.connect(url, password=SECRET, nonsense=1))
