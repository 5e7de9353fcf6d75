"""What kazoo's thread waits on: its bell, its socket, and what TLS has read ahead."""

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


class Queue:
    """Stands for kazoo: requests that wait to be sent, and a ping that waits for its answer."""

    waits = False
    pinged = False
    attended = 0

    def attend(self) -> None:
        self.attended += 1


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def handler(queue: Queue) -> Iterator[Handler]:
    made = Handler(lambda: queue.waits, lambda: queue.pinged, queue.attend, lambda: None)
    bell, writer = made.create_socket_pair()
    yield made
    bell.close()
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


def test_it_waits_for_the_socket_the_bell_or_the_time(handler: Handler, pair: Pair) -> None:
    ours, theirs = pair
    bell = handler._wakeup_reader
    assert handler.select([ours, bell], [], [], 0.01) == ([], [], [])
    assert handler.select([], [ours], [], 1.0) == ([], [ours], [])
    theirs.send(b"x")
    assert handler.select([ours, bell], [], [], SOON) == ([ours], [], [])
    handler.wake()
    assert handler.select([ours, bell], [], [], SOON) == ([ours, bell], [], [])
    theirs.close()
    assert handler.select([ours], [], [], SOON) == ([ours], [], [])


def test_ringing_never_blocks(handler: Handler) -> None:
    """kazoo's own bell does, after a few hundred rings that nobody has heard; also on an event loop."""
    for _ in range(100_000):
        handler.wake()
    assert handler.select([handler._wakeup_reader], [], [], SOON)[0]


def test_requests_without_a_ring_ring_by_themselves(handler: Handler, pair: Pair, queue: Queue) -> None:
    queue.waits = True
    assert handler.select([pair[0], handler._wakeup_reader], [], [], SOON) == ([handler._wakeup_reader], [], [])


def test_it_does_not_wait_longer_than_a_session_allows(handler: Handler, pair: Pair) -> None:
    handler.longest_pause = 0.01
    assert handler.select([pair[0], handler._wakeup_reader], [], [], 3600.0) == ([], [], [])


def test_the_answer_to_a_ping_has_twice_the_time(handler: Handler, pair: Pair, queue: Queue) -> None:
    handler.longest_pause, queue.pinged = 0.15, True
    began = time.monotonic()
    assert handler.select([pair[0], handler._wakeup_reader], [], [], 0.001) == ([], [], [])
    assert time.monotonic() - began >= 0.299


def test_what_is_to_be_done_soon_is_seen_to_before_a_wait_and_a_moment_later(
    handler: Handler, pair: Pair, queue: Queue
) -> None:
    assert handler.select([pair[0], handler._wakeup_reader], [], [], MOMENT / 2) == ([], [], [])
    assert queue.attended == 1
    began = time.monotonic()
    assert handler.select([pair[0], handler._wakeup_reader], [], [], 2 * MOMENT) == ([], [], [])
    assert time.monotonic() - began >= 2 * MOMENT - 0.002
    assert queue.attended == 3
    handler.wake()
    assert handler.select([pair[0], handler._wakeup_reader], [], [], SOON) == ([handler._wakeup_reader], [], [])
    assert queue.attended == 4


def test_what_tls_has_read_ahead_counts(handler: Handler, tls_pair: Pair) -> None:
    """Two answers in one record: when the first is read, no socket tells of the second."""
    ours, theirs = tls_pair
    theirs.send(b"two answers")
    assert ours.recv(4) == b"two "
    assert handler.select([ours, handler._wakeup_reader], [], [], 0.2) == ([ours], [], [])
    handler.wake()
    assert handler.select([ours, handler._wakeup_reader], [], [], 0.2) == ([ours, handler._wakeup_reader], [], [])
    assert ours.recv(100) == b"answers"
    assert handler.select([ours, handler._wakeup_reader], [], [], 0.2) == ([handler._wakeup_reader], [], [])
