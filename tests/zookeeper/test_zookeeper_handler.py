"""The events that kazoo's thread waits for: the wake-up socket, its connection, and data buffered by TLS."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.zookeeper.handler import MOMENT, Handler
from tests.support.certificates import certificates
from tests.zookeeper.support import SOON

Pair = tuple[socket.socket, socket.socket]


class FakeKazoo:
    """Requests that wait to be sent, and a ping that waits for its answer."""

    waits = False
    pinged = False
    attended = 0
    not_again_within = float("inf")

    def attend(self) -> float:
        self.attended += 1
        return self.not_again_within


@pytest.fixture
def kazoo() -> FakeKazoo:
    return FakeKazoo()


@pytest.fixture
def handler(kazoo: FakeKazoo) -> Iterator[Handler]:
    made = Handler(lambda: kazoo.waits, lambda: kazoo.pinged, kazoo.attend, lambda: None)
    reader, writer = made.create_socket_pair()
    yield made
    reader.close()
    writer.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, two = socket.socketpair()
    yield one, two
    one.close()
    two.close()


@pytest.fixture
def tls_pair(tmp_path: Path) -> Iterator[Pair]:
    certificates(tmp_path)
    ours, theirs = socket.socketpair()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    asking = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    accepted: list[ssl.SSLSocket] = []
    accepting = threading.Thread(target=lambda: accepted.append(serving.wrap_socket(theirs, server_side=True)))
    accepting.start()
    client = asking.wrap_socket(ours, server_hostname="127.0.0.1")
    accepting.join(SOON)
    yield client, accepted[0]
    client.close()
    accepted[0].close()


def test_select_returns_on_socket_wakeup_or_timeout(handler: Handler, pair: Pair) -> None:
    ours, theirs = pair
    wakeup = handler._wakeup_reader
    assert handler.select([ours, wakeup], [], [], 0.01) == ([], [], [])
    assert handler.select([], [ours], [], 1.0) == ([], [ours], [])
    theirs.send(b"x")
    assert handler.select([ours, wakeup], [], [], SOON) == ([ours], [], [])
    handler.wake()
    assert handler.select([ours, wakeup], [], [], SOON) == ([ours, wakeup], [], [])
    theirs.close()
    assert handler.select([ours], [], [], SOON) == ([ours], [], [])


def test_wake_never_blocks(handler: Handler) -> None:
    """kazoo's own wake-up blocks after a few hundred unread wake-ups, and would block an event loop."""
    for _ in range(100_000):
        handler.wake()
    assert handler.select([handler._wakeup_reader], [], [], SOON)[0]


def test_waiting_request_without_a_wakeup_ends_the_wait(handler: Handler, pair: Pair, kazoo: FakeKazoo) -> None:
    kazoo.waits = True
    assert handler.select([pair[0], handler._wakeup_reader], [], [], SOON) == ([handler._wakeup_reader], [], [])


def test_wait_is_limited_by_the_longest_pause_of_the_session(handler: Handler, pair: Pair) -> None:
    handler.longest_pause = 0.01
    assert handler.select([pair[0], handler._wakeup_reader], [], [], 3600.0) == ([], [], [])


def test_wait_for_the_answer_to_a_ping_takes_up_to_twice_the_longest_pause(
    handler: Handler, pair: Pair, kazoo: FakeKazoo
) -> None:
    handler.longest_pause, kazoo.pinged = 0.15, True
    began = time.monotonic()
    assert handler.select([pair[0], handler._wakeup_reader], [], [], 0.001) == ([], [], [])
    assert time.monotonic() - began >= 0.299


def test_attend_runs_before_a_wait_and_a_moment_later(handler: Handler, pair: Pair, kazoo: FakeKazoo) -> None:
    assert handler.select([pair[0], handler._wakeup_reader], [], [], MOMENT / 2) == ([], [], [])
    assert kazoo.attended == 1
    began = time.monotonic()
    assert handler.select([pair[0], handler._wakeup_reader], [], [], 2 * MOMENT) == ([], [], [])
    assert time.monotonic() - began >= 2 * MOMENT - 0.002
    assert kazoo.attended == 3
    handler.wake()
    assert handler.select([pair[0], handler._wakeup_reader], [], [], SOON) == ([handler._wakeup_reader], [], [])
    assert kazoo.attended == 4


def test_data_buffered_by_tls_counts_as_readable(handler: Handler, tls_pair: Pair) -> None:
    """With two answers in one record the socket does not signal the second after the first was read."""
    ours, theirs = tls_pair
    theirs.send(b"two answers")
    assert ours.recv(4) == b"two "
    assert handler.select([ours, handler._wakeup_reader], [], [], 0.2) == ([ours], [], [])
    handler.wake()
    assert handler.select([ours, handler._wakeup_reader], [], [], 0.2) == ([ours, handler._wakeup_reader], [], [])
    assert ours.recv(100) == b"answers"
    assert handler.select([ours, handler._wakeup_reader], [], [], 0.2) == ([handler._wakeup_reader], [], [])
