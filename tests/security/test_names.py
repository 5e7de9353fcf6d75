"""Names are data: hostile names affect only their own lock, on every engine."""

from __future__ import annotations

import pytest

import holdfast
from tests.servers.redis import RedisServer

HOSTILE = [
    "a b", "a\nb", "a\r\n*1\r\n$8\r\nFLUSHALL\r\n", "a\0b", "{", "}", "{}", "}x", "a}b{c", "{a}", "a:b", "../../x",
    "'; DROP TABLE lock; --", '"', "\\", "*", "?", "[a-z]", "ключ", "锁", "🔒", "x" * 512, "KEYS[1]", "%s", "\x1b[31m",
]  # fmt: skip


@pytest.mark.needs_redis
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_is_an_ordinary_lock(url: str, name: str) -> None:
    with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        with locks.lock(name) as lease:
            assert lease.name == name
            assert others.lock(name).try_acquire() is None
            assert others.inspect(name).holders[0].owner == lease.owner
            assert [state.name for state in others.locks()] == [name]
            assert [state.name for state in others.locks(name[:1])] == [name]
            assert [state.name for state in others.locks("unused")] == []
            with others.lock("bystander", timeout=5) as other:
                assert other.held
        assert others.inspect(name).holders == ()


@pytest.mark.parametrize("name", ["", "x" * 513, "é" * 257, "\ud800", None, 7, b"bytes", True])
def test_invalid_name_is_refused(name: object) -> None:
    with holdfast.connect("memory:") as locks, pytest.raises(holdfast.InvalidName) as caught:
        locks.lock(name)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)


def test_name_of_an_auxiliary_key_of_another_lock_is_refused(redis_server: RedisServer) -> None:
    with holdfast.connect(redis_server.url) as locks:
        for name in ("redisson_lock_token:{x}", "holdfast_owner:{x}", "holdfast_queue:{x}"):
            with pytest.raises(holdfast.InvalidName):
                locks.lock(name)
