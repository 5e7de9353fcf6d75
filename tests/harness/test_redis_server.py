"""The tests' own Redis: it starts, pauses, dies and restarts as the fault tests assume."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.servers.ports import is_free
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

Start = Callable[..., RedisServer]


def test_server_is_the_process_that_was_started(redis_server: RedisServer) -> None:
    assert redis_server.client().info("server")["process_id"] == redis_server.pid
    assert f":{redis_server.port}/" in redis_server.url


@pytest.mark.parametrize("turn", [1, 2])
def test_server_is_empty_at_the_start_of_each_test(redis_server: RedisServer, turn: int) -> None:
    client = redis_server.client()
    assert client.dbsize() == 0
    client.set("left behind", turn)


def test_paused_server_does_not_answer_until_resumed(start_redis: Start) -> None:
    server = start_redis()
    server.client().set("key", "value")
    server.pause()
    with pytest.raises(redis.TimeoutError):
        server.client(socket_timeout=0.2).get("key")
    server.resume()
    assert server.client().get("key") == b"value"


def test_killed_server_restarts_empty_on_the_same_port(start_redis: Start) -> None:
    server = start_redis()
    port, pid = server.port, server.pid
    server.client().set("key", "value")
    server.kill()
    assert not server.running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, port), 5.0)
    server.restart()
    assert server.port == port
    assert server.pid != pid
    assert server.client().get("key") is None


def test_port_is_reserved_while_the_server_is_down(start_redis: Start) -> None:
    """If another server took the port meanwhile, this one could not restart."""
    server = start_redis()
    server.kill()
    assert not is_free(server.port)
    server.restart()
    server.close()
    eventually(lambda: is_free(server.port))  # when the kernel has closed its connections


def test_password_and_user_permissions_are_enforced(start_redis: Start) -> None:
    server = start_redis("user app on >pw ~app:* +get +set", password="s3cr3t")
    assert server.client().ping()
    client = server.client(server.url_as("app", "pw"))
    assert client.set("app:x", 1)
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.set("other", 1)


def test_server_listens_on_a_unix_socket(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.unix_url) as client:
        assert client.ping()


@pytest.mark.needs_redis
def test_directory_is_removed_with_the_server() -> None:
    with RedisServer() as server:
        directory: Path = server.directory
        assert (directory / "log").exists()
    assert not directory.exists()
