"""Leases of read locks at an ObjectFence."""

from __future__ import annotations

import pytest
from obstore.store import MemoryStore

from holdfast.errors import StaleToken, UsageError
from holdfast.fencing import ObjectFence
from tests.support.readers import Reader


def test_reader_passes_if_it_is_not_older_and_leaves_the_head_as_it_is() -> None:
    store = MemoryStore()
    fence = ObjectFence(store)
    assert fence.load("data", Reader(5)) is None
    assert list(store.list().collect()) == []
    fence.check("data", 10, "writer")
    fence.store("data", b"1", 10, "writer")
    assert fence.load("data", Reader(10)) == fence.load("data", Reader(11)) == b"1"
    with pytest.raises(StaleToken):
        fence.load("data", Reader(9))
    fence.store("data", b"2", 10, "writer")  # its token is still the head's
    with pytest.raises(UsageError, match="read lease"):
        fence.store("data", b"3", Reader(10))
    with pytest.raises(UsageError, match="read lease"):
        fence.delete("data", Reader(10))
    assert fence.read("data") == b"2"
