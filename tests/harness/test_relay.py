"""The tests' own relay: bytes pass while the link is open; a connection closed during a black hole never arrives."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.servers.loop_thread import LoopThread
from tests.servers.relay import Relay
from tests.support.waiting import eventually

WITHIN = 5.0


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WITHIN)
        yield listening


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread("relay")
    yield loop
    loop.close()


@pytest.fixture
def relay(loop: LoopThread, target: socket.socket) -> Iterator[Relay]:
    with Relay(loop, target.getsockname) as relay:
        yield relay


def send_and_disconnect(relay: Relay) -> None:
    with socket.create_connection((relay.host, relay.port), WITHIN) as client:
        client.sendall(b"hello")


def test_client_that_disconnects_before_the_relay_accepts_it_is_relayed(
    relay: Relay, loop: LoopThread, target: socket.socket
) -> None:
    """A ZooKeeper member with a small number connects, introduces itself and disconnects, and the other member connects
    back. On a busy machine none of these introductions arrived, and the member never found the others."""
    busy, done = threading.Event(), threading.Event()

    def keep_busy() -> None:
        busy.set()
        done.wait(WITHIN)

    async def soon() -> None:
        asyncio.get_running_loop().call_later(0.01, keep_busy)  # runs after this coroutine

    loop.do(soon)
    assert busy.wait(WITHIN)
    send_and_disconnect(relay)
    done.set()
    accepted, _ = target.accept()
    with accepted:
        accepted.settimeout(WITHIN)
        assert accepted.recv(100) == b"hello"
        assert accepted.recv(100) == b""


def test_client_that_disconnects_during_a_black_hole_is_not_relayed(relay: Relay, target: socket.socket) -> None:
    relay.black_hole_all()
    send_and_disconnect(relay)
    eventually(lambda: relay.connections == 1)
    relay.heal()
    with socket.create_connection((relay.host, relay.port), WITHIN) as client:
        client.sendall(b"later")
        accepted, _ = target.accept()
        with accepted:
            accepted.settimeout(WITHIN)
            assert accepted.recv(100) == b"later"


def test_connections_that_are_being_accepted_are_closed_with_the_relay(target: socket.socket) -> None:
    """Left open, they would be garbage in a later test, which would fail."""
    for _ in range(30):
        loop = LoopThread("relay")
        relay = Relay(loop, target.getsockname).start()
        clients = [socket.create_connection((relay.host, relay.port)) for _ in range(5)]
        relay.close()
        for client in clients:
            client.settimeout(WITHIN)
            with contextlib.suppress(ConnectionError):
                assert client.recv(1) == b"", "it is still open"
            client.close()
        loop.close()
