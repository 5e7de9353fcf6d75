"""Several servers are asked in parallel, and one of them uses up all the time: what the others have answered is read.

Found by a test of a cluster with a frozen server that failed now and then: the leases on another server were lost,
since a push came before its answers, or since it did not know the script yet, and had a millisecond to run it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections import in_flight
from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.scripts import RENEW

OVER = -1.0  # seconds until the deadline
#: How long the server takes for a script that it did not know.
BUSY = 0.05
PUSH = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\njob\r\n"


@pytest.fixture
def ends() -> Iterator[tuple[Wire, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        yield Wire(ours, "here"), theirs


def test_reply_after_a_push_is_read_at_the_deadline(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends
    server.sendall(PUSH + b":1\r\n")
    assert wire.late_reply(time.monotonic() + OVER) == 1


def test_replies_of_many_calls_are_read_at_the_deadline(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends
    server.sendall(b"".join(b"$6\r\n%06d\r\n" % number for number in range(1000)))
    deadline = time.monotonic() + OVER
    assert [wire.late_reply(deadline) for _ in range(1000)] == [b"%06d" % number for number in range(1000)]


def test_server_that_has_not_answered_is_not_waited_for_at_the_deadline(ends: tuple[Wire, socket.socket]) -> None:
    wire, server = ends
    server.sendall(PUSH)
    began = time.monotonic()
    with pytest.raises(RequestFailed, match="no reply in time"):
        wire.late_reply(began + OVER)
    assert time.monotonic() - began < 1


def test_script_that_the_server_does_not_know_has_time_of_its_own_at_the_deadline(
    ends: tuple[Wire, socket.socket],
) -> None:
    """On an idle machine a millisecond would be enough, and a busy one lost all leases on that server."""
    wire, server = ends

    def answer() -> None:
        assert b"EVALSHA" in server.recv(65536)
        server.sendall(b"-NOSCRIPT No matching script.\r\n")
        assert b"EVAL\r\n" in server.recv(65536)
        time.sleep(BUSY)
        server.sendall(b":1\r\n")

    answering = threading.Thread(target=answer)
    answering.start()
    sent = in_flight.send(wire, [Call(RENEW, ["job"], ["owner"])], 0, 5.0, tracked=False)
    wire._polled(5.0)  # the answer has arrived
    assert in_flight.receive(sent, time.monotonic() + OVER) == [1]
    answering.join()
