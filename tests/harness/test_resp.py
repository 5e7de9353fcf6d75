"""RESP frames are reassembled from data that is split anywhere."""

from __future__ import annotations

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.testing import resp

lines = st.text("abc 123", max_size=8).map(str.encode)
bulks = st.binary(max_size=20).map(lambda data: b"$%d\r\n%b\r\n" % (len(data), data))
leaves = st.one_of(
    bulks,
    lines.map(lambda text: b"+%b\r\n" % text),
    lines.map(lambda text: b"-ERR %b\r\n" % text),
    st.integers().map(lambda number: b":%d\r\n" % number),
    st.sampled_from([b"_\r\n", b"#t\r\n", b",1.5\r\n", b"(123\r\n", b"$-1\r\n", b"*-1\r\n", b"=7\r\ntxt:a\r\n\r\n"]),
)


def _aggregates(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    several = st.lists(inner, max_size=3)
    return st.one_of(
        st.builds(
            lambda kind, items: b"%b%d\r\n%b" % (kind, len(items), b"".join(items)),
            st.sampled_from([b"*", b"~", b">"]),
            several,
        ),
        several.map(lambda items: b"%%%d\r\n%b" % (len(items), b"".join(item + item for item in items))),
        st.tuples(several, inner).map(lambda pair: b"|%d\r\n%b%b" % (len(pair[0]), b"".join(2 * pair[0]), pair[1])),
    )


frames = st.recursive(leaves, _aggregates, max_leaves=8)


@given(st.lists(frames, max_size=6), st.lists(st.integers(min_value=1, max_value=9), max_size=40))
def test_frames_are_found_in_data_split_anywhere(wanted: list[bytes], cuts: list[int]) -> None:
    stream, parser, found = b"".join(wanted), resp.Frames(), []
    for cut in cuts:
        found += parser.feed(stream[:cut])
        stream = stream[cut:]
    found += parser.feed(stream)
    assert found == wanted


@given(frames, st.data())
def test_no_part_of_a_frame_is_a_frame(frame: bytes, data: st.DataObject) -> None:
    part = frame[: data.draw(st.integers(min_value=0, max_value=len(frame) - 1))]
    assert resp.Frames().feed(part) == []


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5))
def test_words_of_a_request_are_unpacked(words: list[bytes]) -> None:
    packed = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]  # its stub knows tuples of one
    assert resp.Frames(inline=True).feed(packed) == [packed]
    assert resp.words(packed) == tuple(words)


def test_inline_requests_are_frames() -> None:
    assert resp.Frames(inline=True).feed(b"PING hello\r\nGET k\r\n") == [b"PING hello\r\n", b"GET k\r\n"]
    assert resp.words(b"PING hello\r\n") == (b"PING", b"hello")


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400\r\n", b"$x\r\n", b"*1.5\r\n", b"\x00\r\n"])
def test_data_that_is_not_resp_is_refused(garbage: bytes) -> None:
    with pytest.raises(resp.ProtocolError):
        resp.Frames().feed(garbage)


def test_pushes_and_confirmations_are_recognised() -> None:
    assert resp.is_push(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
    assert resp.is_push(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
    assert not resp.is_push(b"*1\r\n$1\r\nk\r\n")
    assert not resp.is_push(b"*0\r\n")
    assert resp.is_confirmation(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
    assert resp.is_confirmation(b">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n")
    assert not resp.is_confirmation(b"+subscribe\r\n")
