"""ObjectFence on a memory store and on S3: the rule, the head, leftovers, damaged heads."""

from __future__ import annotations

import json
from pathlib import Path

import obstore
import pytest
from obstore.store import HTTPStore, LocalStore, MemoryStore, S3Store

from holdfast.errors import EngineRefused, EngineUnavailable, InvalidName, StaleToken, UsageError
from holdfast.fencing import AsyncObjectFence, ObjectFence
from tests.servers.moto import store_of

LARGEST = 2**63 - 1


@pytest.fixture
def fence(store: MemoryStore | S3Store) -> ObjectFence:
    return ObjectFence(store)


def _paths(store: MemoryStore | S3Store) -> list[str]:
    return sorted(entry["path"] for entry in obstore.list(store).collect())


def test_value_is_stored_loaded_read_and_deleted(fence: ObjectFence) -> None:
    assert fence.load("report", 5, "a") is None
    fence.store("report", b"one", 5, "a")
    fence.store("report", bytearray(b"two"), 5, "a")
    assert fence.read("report") == fence.load("report", 5, "a") == b"two"
    fence.store("report", b"", 5, "a")
    assert fence.read("report") == b""
    fence.delete("report", 5, "a")
    assert fence.read("report") is None
    assert fence.load("report", 6, "b") is None
    fence.store("report", memoryview(b"three"), 6, "b")
    assert fence.read("report") == b"three"


@pytest.mark.parametrize("late", [(4, "a"), (5, "b"), (5, None)])
def test_stale_token_can_neither_load_nor_store_nor_delete(late: tuple[int, str | None], fence: ObjectFence) -> None:
    fence.check("k", 5, "a")
    fence.store("k", b"new", 5, "a")
    for call in (fence.load, fence.check, fence.delete):
        with pytest.raises(StaleToken) as refused:
            call("k", *late)
        assert (refused.value.resource, refused.value.token, refused.value.seen) == ("k", late[0], 5)
    with pytest.raises(StaleToken):
        fence.store("k", b"late", *late)
    assert fence.read("k") == b"new"


def test_stale_writer_between_load_and_store_of_the_new_holder_is_refused(fence: ObjectFence) -> None:
    fence.load("k", 1, "old")
    fence.store("k", b"1", 1, "old")
    assert fence.load("k", 2, "new") == b"1"  # raises the head before it reads
    with pytest.raises(StaleToken):
        fence.store("k", b"2", 1, "old")
    fence.store("k", b"2", 2, "new")
    assert fence.read("k") == b"2"


def test_store_before_the_load_is_refused_with_a_remedy(fence: ObjectFence) -> None:
    with pytest.raises(UsageError, match=r"load\(\) or check\(\) first"):
        fence.store("k", b"1", 5, "a")
    fence.check("k", 5, "a")
    fence.store("k", b"1", 5, "a")
    with pytest.raises(UsageError):
        fence.store("k", b"2", 6, "b")
    assert fence.read("k") == b"1"


def test_storing_an_equal_value_changes_the_head(fence: ObjectFence, store: MemoryStore | S3Store) -> None:
    fence.check("k", 5, "a")
    tags = set()
    for _ in range(3):
        fence.store("k", b"same", 5, "a")
        tags.add(obstore.head(store, "k/head")["e_tag"])
    assert len(tags) == 3


def test_superseded_values_are_removed(fence: ObjectFence, store: MemoryStore | S3Store) -> None:
    fence.check("k", 5, "a")
    for number in range(3):
        fence.store("k", b"%d" % number, 5, "a")
    data, head = _paths(store)
    assert head == "k/head"
    assert data.startswith(f"k/{5:019d}-")


def test_sweep_removes_only_obsolete_objects(fence: ObjectFence, store: MemoryStore | S3Store) -> None:
    assert fence.sweep("k") == 0
    fence.check("k", 5, "a")
    fence.store("k", b"value", 5, "a")
    dead, on_its_way = f"k/{4:019d}-{'0' * 32}", f"k/{6:019d}-{'1' * 32}"
    others = ["k/notes.txt", f"k/deeper/{1:019d}-{'2' * 32}", f"kk/{1:019d}-{'3' * 32}"]
    for path in (dead, on_its_way, *others):
        obstore.put(store, path, b"x")
    assert fence.sweep("k") == 1
    assert {on_its_way, *others} < set(_paths(store))
    assert fence.load("k", 7, "b") == b"value"
    assert fence.sweep("k") == 1  # the object of token 6; the current value is of token 5
    assert fence.read("k") == b"value"


@pytest.mark.parametrize("key", ["a/b/c", "with space", "ключ é", "odd*?#%25[1]~", "x" * 512])
def test_valid_keys_are_accepted(key: str) -> None:
    store = MemoryStore()
    fence = ObjectFence(store)
    fence.check(key, 5, "a")
    fence.store(key, b"1", 5, "a")
    obstore.put(store, f"{key}/{4:019d}-{'0' * 32}", b"x")
    assert fence.sweep(key) == 1
    assert fence.read(key) == b"1"


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "a/../b", "a\nb", "\ud800", "x" * 513, 5])
def test_invalid_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidName):
        ObjectFence(MemoryStore()).load(key, 5, "a")


def _record(**changes: object) -> bytes:
    record = {
        "format": "holdfast object 1", "key": "k", "token": 5, "owner": "a", "target": None, "deleted": False,
        "previous": None, "nonce": "0" * 32,
    }  # fmt: skip
    return json.dumps(record | changes, separators=(",", ":")).encode() + b"\n"


def test_sample_record_is_a_valid_head() -> None:
    store = MemoryStore()
    obstore.put(store, "k/head", _record())
    assert ObjectFence(store).load("k", 5, "a") is None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b"null", b"not json", _record()[:-1], _record() + b" ", b" " + _record(), b"[" * 20_000,
        _record(token=-1), _record(token="5"), _record(token=True), _record(owner=7), _record(key="other"),
        _record(target="../elsewhere"), _record(target=7), _record(previous="x"), _record(deleted=None),
        _record(nonce=1), _record(format="holdfast object 2"), _record(more=1), _record(token=2**63),
    ],
)  # fmt: skip
def test_damaged_or_foreign_head_refuses_every_token(body: bytes) -> None:
    store = MemoryStore()
    obstore.put(store, "k/head", body)
    fence = ObjectFence(store)
    for call in (fence.load, fence.check, fence.delete):
        with pytest.raises(EngineRefused, match="k/head"):
            call("k", LARGEST, "a")
    with pytest.raises(EngineRefused):
        fence.read("k")
    assert bytes(obstore.get(store, "k/head").bytes()) == body


def test_missing_value_object_is_an_error(fence: ObjectFence, store: MemoryStore | S3Store) -> None:
    fence.check("k", 5, "a")
    fence.store("k", b"1", 5, "a")
    obstore.delete(store, next(path for path in _paths(store) if path != "k/head"))
    with pytest.raises(EngineRefused, match="Restore it"):
        fence.read("k")
    with pytest.raises(EngineRefused, match="Restore it"):
        fence.load("k", 6, "b")


def test_stores_without_conditional_writes_are_refused(tmp_path: Path) -> None:
    for store in (LocalStore(tmp_path), HTTPStore("https://example.com")):
        with pytest.raises(UsageError, match="conditional"):
            ObjectFence(store)
        with pytest.raises(UsageError, match="conditional"):
            AsyncObjectFence(store)


def test_verify_passes_on_a_conditional_store_and_leaves_no_objects(
    fence: ObjectFence, store: MemoryStore | S3Store
) -> None:
    fence.verify("k")
    assert _paths(store) == []


def test_verify_reports_a_store_that_ignores_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, path, file, mode=None: put(store, path, file))
    with pytest.raises(EngineRefused, match="ignores conditional writes"):
        ObjectFence(MemoryStore()).verify("k")


def test_unreachable_server_is_unavailable() -> None:
    fence = ObjectFence(store_of("http://127.0.0.1:9", "bucket"))
    for call in (fence.load, fence.delete):
        with pytest.raises(EngineUnavailable) as failed:
            call("k", 5, "a")
        assert failed.value.__cause__ is not None


def test_value_that_is_not_bytes_is_refused(fence: ObjectFence) -> None:
    fence.check("k", 5, "a")
    with pytest.raises(TypeError, match="bytes"):
        fence.store("k", "text", 5, "a")  # type: ignore[arg-type]


async def test_async_fence_behaves_the_same(store: MemoryStore | S3Store) -> None:
    fence = AsyncObjectFence(store)
    await fence.verify("k")
    assert await fence.load("k", 5, "a") is None
    await fence.store("k", b"1", 5, "a")
    assert await fence.load("k", 6, "b") == b"1"
    with pytest.raises(StaleToken):
        await fence.store("k", b"2", 5, "a")
    await fence.check("k", 6, "b")
    assert await fence.sweep("k") == 0
    await fence.delete("k", 6, "b")
    assert await fence.read("k") is None
