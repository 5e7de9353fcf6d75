"""Messages between runner and guardian."""

from __future__ import annotations

import os
import select

from holdfast.cli.run.link import Link


def test_messages_descriptors_and_end_arrive_in_order() -> None:
    ours, theirs = Link.pair()
    ours.send("start", [0], environment={"A": "ä\n"})
    ours.send("deadline", deadline=1.5)
    ours.hang_up()
    assert theirs.receive() == [
        {"kind": "start", "environment": {"A": "ä\n"}},
        {"kind": "deadline", "deadline": 1.5},
    ]
    assert theirs.ended
    (descriptor,) = theirs.descriptors
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    ours.close()
    theirs.close()


def test_peer_that_does_not_read_blocks_no_send_and_splits_no_message() -> None:
    ours, theirs = Link.pair()
    for number in range(50_000):
        ours.send("signal", number=number)
    received = theirs.receive()
    assert [message["number"] for message in received] == list(range(len(received)))
    assert len(received) < 50_000
    ours.send("signal", number=-1)  # buffered messages are sent with the next one
    assert theirs.receive()[-1]["kind"] == "signal"
    ours.close()
    theirs.close()


def test_closed_peer_ends_the_link_without_an_error() -> None:
    ours, theirs = Link.pair()
    theirs.close()
    ours.send("signal", number=1)
    assert ours.receive() == []
    assert ours.ended
    ours.close()


def test_message_longer_than_the_buffer_arrives_without_another_send() -> None:
    """Otherwise a command with a long HOLDFAST_HELD would not start before the next renewal."""
    ours, theirs = Link.pair()
    ours.send("start", environment={"A": "x" * 1_000_000})
    received = theirs.receive()
    while not received:
        assert ours.events == select.POLLIN | select.POLLOUT
        assert ours.receive() == []
        received = theirs.receive()
    assert received == [{"kind": "start", "environment": {"A": "x" * 1_000_000}}]
    assert ours.events == select.POLLIN
    ours.close()
    theirs.close()
