"""The list of rights in SECURITY.md: complete for the shipped scripts, and enough on a real server."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
import redis

import holdfast
from tests.servers.redis import RedisServer

TEXT = (Path(__file__).parents[2] / "SECURITY.md").read_text("utf-8")


def rule() -> str:
    """The ACL rule as one line of redis.conf."""
    block = re.search(r"```\n(user app .*?)```", TEXT, re.DOTALL)
    assert block is not None
    return " ".join(block.group(1).split()).replace("CHANGE-ME", "pw")


#: What is sent besides scripts: the handshake, the scripts themselves, why a key is refused, and the pub/sub fallback.
PLAIN = {"hello", "auth", "select", "evalsha", "eval", "type", "subscribe", "unsubscribe"}


def test_what_the_scripts_use_is_listed_and_nothing_more() -> None:
    scripts = resources.files("holdfast.engines.redis").joinpath("scripts")
    used = {
        command.lower()
        for script in scripts.iterdir()
        if script.name.endswith(".lua")
        for command in re.findall(r"\bp?call\(\s*['\"](\w+)['\"]", script.read_text("utf-8"))
    }
    assert "pexpire" in used
    assert {word.removeprefix("+") for word in rule().split() if word.startswith("+")} == used | PLAIN


@pytest.mark.parametrize("more", ["", "+client|tracking +client|caching ~holdfast_probe:* +client|setname"])
def test_it_is_enough_for_locks_and_for_nothing_else(start_redis: Callable[..., RedisServer], more: str) -> None:
    server = start_redis(f"{rule()} {more}")
    with holdfast.connect(server.url_as("app", "pw"), namespace="app") as locks:
        locks.ping()
        with locks.lock("order:42") as lease:
            assert lease.token > 0
            assert locks.inspect("order:42").holders
            # Waiting, a time-out and leaving the queue, all within these rights.
            assert locks.lock("order:42", reentrant=False).try_acquire(timeout=0.2) is None
        assert locks.inspect("order:42").holders == ()
        abandoned = locks.lock("order:43").acquire()
        assert locks.break_("order:43")
        with pytest.raises(holdfast.LockLost):
            abandoned.release()
    with pytest.raises(redis.exceptions.NoPermissionError):
        server.client(server.url_as("app", "pw")).set("other", 1)
    with holdfast.connect(server.url_as("app", "pw")) as outside, pytest.raises(holdfast.EngineRefused):
        outside.lock("other").acquire(timeout=1)
