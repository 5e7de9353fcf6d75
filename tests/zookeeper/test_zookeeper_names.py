"""Names of locks as names of nodes: readable where possible, unique, and accepted by a real server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.zookeeper import names
from holdfast.engines.zookeeper.target import REFUSED
from holdfast.errors import InvalidName

if TYPE_CHECKING:
    from tests.servers.zookeeper import ZooKeeperServer

any_text = partial(st.text, st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
#: Characters that the encoding treats specially.
awkward = st.text("%./2EFf5\0\x7fé\ue000\ufffd🔒", min_size=1, max_size=8)


@pytest.mark.parametrize(
    "name",
    [
        "orders", "orders:42", "a b", "é", "锁", "a-b_c.d", "...", ".a", "a.", " ", "~!@#$^&*()+={}[]|\\\"'<>?,;`",
        "lock-0000000001", "_c_x-lock-", "locks", "\ud7ff", "\uf900", "\uffef", "zookeepers",
    ],
)  # fmt: skip
def test_ordinary_names_are_not_encoded(name: str) -> None:
    assert names.encode(name) == name
    assert names.decode(name) == name


@pytest.mark.parametrize(
    "name, node",
    [
        ("a/b", "a%2Fb"),
        ("/", "%2F"),
        ("50%", "50%25"),
        ("%2F", "%252F"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("../x", "..%2Fx"),
        ("a\nb", "a%0Ab"),
        ("\0", "%00"),
        ("\x7f\x80\x9f\xa0", "%7F%C2%80%C2%9F\xa0"),
        ("\ue000\uf8ff", "%EE%80%80%EF%A3%BF"),
        ("\ufff0\uffff", "%EF%BF%B0%EF%BF%BF"),
        ("🔒", "%F0%9F%94%92"),
        ("\U00010000\U0010ffff", "%F0%90%80%80%F4%8F%BF%BF"),
    ],
)
def test_characters_that_zookeeper_refuses_are_encoded(name: str, node: str) -> None:
    assert names.encode(name) == node
    assert names.decode(node) == name


@given(any_text() | awkward)
def test_encoded_name_is_valid_and_decodes_to_itself(name: str) -> None:
    node = names.encode(name)
    assert names.decode(node) == name
    assert not REFUSED.search(node)
    assert node not in (".", "..")


@given(any_text() | awkward)
def test_node_decodes_to_one_name_or_none(node: str) -> None:
    name = names.decode(node)
    assert name is None or names.encode(name) == node


@pytest.mark.parametrize(
    "node", ["50%", "%", "%2", "%2f", "%41", "a%2e", "%ZZ", "%C3", "%FF", "%ED%A0%80", "%2E%2E%2E", ".", "a/b", "🔒"]
)
def test_node_that_no_name_encodes_to_has_no_name(node: str) -> None:
    """A lenient decoder would list ``%41`` as the lock ``A``, which has another node."""
    assert names.decode(node) is None


def test_path_is_base_and_encoded_name_and_refuses_zookeeper_at_the_root() -> None:
    assert names.path("", "a/b") == "/a%2Fb"
    assert names.path("/x/y", "zookeeper") == "/x/y/zookeeper"
    with pytest.raises(InvalidName, match="namespace=") as caught:
        names.path("", "zookeeper")
    assert caught.value.name == "zookeeper"


#: Both sides of every boundary between allowed and refused characters, and some above U+FFFF.
BOUNDARIES = [
    *map(chr, [*range(0x21), 0x7E, 0x7F, 0x80, 0x9F, 0xA0, 0xD7FF, 0xE000, 0xF8FF, 0xF900, 0xFFEF, 0xFFF0, 0xFFFF]),
    *"%\U00010000\U0001f512\U0010ffff",
]


def test_refused_characters_are_exactly_those_that_a_real_server_refuses(zookeeper_server: ZooKeeperServer) -> None:
    from kazoo.exceptions import BadArgumentsError

    client = zookeeper_server.client()
    client.ensure_path("/raw")
    client.ensure_path("/encoded")
    raw = {one: client.create_async(f"/raw/a{one}b") for one in BOUNDARIES}
    encoded = {one: client.create_async(names.path("/encoded", f"a{one}b")) for one in BOUNDARIES}
    for one, result in raw.items():
        result.wait(10)
        refused = isinstance(result.exception, BadArgumentsError)
        assert refused or result.successful()
        assert refused == bool(REFUSED.search(one)), hex(ord(one))
    for one, result in encoded.items():
        assert result.get(timeout=10) == names.path("/encoded", f"a{one}b")
    assert {names.decode(node) for node in client.get_children("/encoded")} == {f"a{one}b" for one in BOUNDARIES}
