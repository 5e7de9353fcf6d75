"""FileFence: the files it leaves on the disk, and the files it refuses."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import threading
from pathlib import Path

import pytest

from holdfast.errors import EngineRefused, StaleToken
from holdfast.fencing import FileFence, record
from holdfast.fencing.rule import LARGEST_TOKEN, Bearer
from tests.support.leaks import descriptors


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "fence"


def only(directory: Path, suffix: str) -> Path:
    (found,) = directory.glob(f"*{suffix}")
    return found


def test_files_are_private_and_not_named_after_the_resource(directory: Path, tmp_path: Path) -> None:
    FileFence(directory).check("../../etc/passwd\n\x00", 1, "a")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert sorted(file.suffix for file in directory.iterdir()) == [".lock", ".seen"]
    for file in directory.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert len(file.stem) == 64
        assert set(file.stem) <= set("0123456789abcdef")
    assert list(tmp_path.iterdir()) == [directory]


def test_no_descriptor_is_kept_and_guard_descriptors_close_on_exec(directory: Path) -> None:
    fence = FileFence(directory)
    before = descriptors()
    with fence.guard("r", 1):
        during = descriptors() - before
        assert len(during) == 2
        assert not any(os.get_inheritable(fd) for fd in during)
    with pytest.raises(StaleToken), fence.guard("r", 0):
        pass
    assert descriptors() == before


def test_second_fence_on_the_directory_continues_with_the_same_tokens(directory: Path) -> None:
    FileFence(directory).check("r", LARGEST_TOKEN - 1, "ö\n\x01")
    again = FileFence(str(directory))
    again.check("r", LARGEST_TOKEN - 1, "ö\n\x01")
    again.check("r", LARGEST_TOKEN, None)
    again.check("r", LARGEST_TOKEN, None)
    with pytest.raises(StaleToken):
        FileFence(directory).check("r", LARGEST_TOKEN, "ö\n\x01")


def test_the_longest_record_fits(directory: Path) -> None:
    worst = "\x01" * 512
    FileFence(directory).check(worst, LARGEST_TOKEN, worst)
    FileFence(directory).check(worst, LARGEST_TOKEN, worst)
    assert only(directory, ".seen").stat().st_size <= record.LONGEST


def test_later_chdir_does_not_move_the_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fence = FileFence("fence")
    fence.check("r", 2)
    monkeypatch.chdir("/")
    with pytest.raises(StaleToken):
        fence.check("r", 1)


def test_truncated_record_refuses_every_token(directory: Path) -> None:
    fence = FileFence(directory, durable=False)
    fence.check("r", 1234567, "a")
    file = only(directory, ".seen")
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        with pytest.raises(EngineRefused, match="damaged"):
            fence.check("r", 9999999, "b")
    file.write_bytes(whole)
    fence.check("r", 1234567, "a")


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 80,
        b"7\n",
        b"null\n",
        b"[" * 8000,
        record.encode("r", Bearer(5, "a")) * 2,
        record.encode("r", Bearer(5, "a")) + b" " * record.LONGEST,
        record.encode("r", Bearer(5, "a")).replace(b"5", b"05"),
        record.encode("r", Bearer(5, "a")).replace(b"5", b"5.0"),
        record.encode("r", Bearer(5, "a")).replace(b"5", b'"5"'),
        record.encode("r", Bearer(5, "a")).replace(b"5", b"-5"),
        record.encode("r", Bearer(5, "a")).replace(b"5", b"true"),
        record.encode("r", Bearer(5, "a")).replace(b"5", b"9" * 5000),
        record.encode("r", Bearer(5, "a")).replace(b"fence 1", b"fence 2"),
        record.encode("r", Bearer(5, "a")).replace(b'"token":5', b'"token":5,"token":5'),
        record.encode("another resource", Bearer(5, "a")),
        record.encode("r", Bearer(5, "a")).replace(b'"a"', b'"\xff"'),
    ],
)
def test_invalid_record_refuses_every_token(directory: Path, content: bytes) -> None:
    fence = FileFence(directory, durable=False)
    fence.check("r", 5, "a")
    file = only(directory, ".seen")
    file.write_bytes(content)
    with pytest.raises(EngineRefused, match="damaged"), fence.guard("r", 6, "b"):
        raise AssertionError("the body ran")
    assert file.read_bytes() == content


@pytest.mark.parametrize("suffix", [".lock", ".seen", ".new"])
def test_symbolic_link_in_place_of_a_file_is_not_followed(directory: Path, tmp_path: Path, suffix: str) -> None:
    fence = FileFence(directory)
    fence.check("r", 1)
    victim = tmp_path / "victim"
    victim.write_bytes(record.encode("r", Bearer(0, None)))
    file = only(directory, ".seen").with_suffix(suffix)
    file.unlink(missing_ok=True)
    file.symlink_to(victim)
    with pytest.raises(OSError), fence.guard("r", 2):
        raise AssertionError("the body ran")
    assert victim.read_bytes() == record.encode("r", Bearer(0, None))


def test_directory_writable_by_other_users_is_refused(directory: Path, tmp_path: Path) -> None:
    directory.mkdir(mode=0o700)
    directory.chmod(0o770)
    with pytest.raises(EngineRefused, match="chmod 700"):
        FileFence(directory)
    directory.chmod(0o700)
    FileFence(directory)
    (tmp_path / "link").symlink_to(directory)
    with pytest.raises(OSError):
        FileFence(tmp_path / "link")


def test_directory_replaced_by_an_empty_one_is_detected(directory: Path, tmp_path: Path) -> None:
    fence = FileFence(directory)
    fence.check("r", 5)
    directory.rename(tmp_path / "elsewhere")
    directory.mkdir(mode=0o700)
    with pytest.raises(EngineRefused, match="not the directory it was"):
        fence.check("r", 4)


def test_failed_store_admits_no_token_and_keeps_the_older_one(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = FileFence(directory)
    fence.check("r", 5)
    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: len(data) // 2)  # a full disk accepts only half
        with pytest.raises(OSError, match="No space"), fence.guard("r", 6):
            raise AssertionError("the body ran")
    assert descriptors() == before
    fence.check("r", 5)
    with pytest.raises(StaleToken):
        fence.check("r", 4)


def test_durable_fence_syncs_before_the_body_only_for_a_new_token(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    with FileFence(directory).guard("r", 1):
        assert [Path(name).suffix for name in synced] == [".new", ""]
    FileFence(directory).check("r", 1)
    FileFence(directory, durable=False).check("r", 2)
    assert len(synced) == 2


def test_lock_outlives_the_write_of_a_cancelled_guard(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fence = FileFence(directory)
    syncing, go_on = threading.Event(), threading.Event()

    def slow_sync(descriptor: int) -> None:
        syncing.set()
        assert go_on.wait(10)

    async def enter() -> None:
        async with fence.guard("r", 5):
            raise AssertionError("the body ran")

    async def main() -> None:
        entering = asyncio.create_task(enter())
        assert await asyncio.to_thread(syncing.wait, 10)  # proves that the loop is not blocked
        for _ in range(3):
            entering.cancel()
            await asyncio.sleep(0)
        assert not entering.done()
        with pytest.raises(TimeoutError):
            async with fence.guard("r", 6, timeout=0):
                raise AssertionError("let in beside a write that is going on")
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await entering
        async with fence.guard("r", 6, timeout=0):
            pass

    monkeypatch.setattr(os, "fsync", slow_sync)
    asyncio.run(main())


def test_lock_file_removed_while_waiting_does_not_admit_two(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is opened, then removed and recreated before flock: the lock would be on an unlinked file."""
    fence = FileFence(directory)
    fence.check("r", 1)
    real = fcntl.flock
    removed: list[Path] = []

    def flock(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(only(directory, ".lock"))
            removed[0].unlink()
            removed[0].touch(mode=0o600)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with fence.guard("r", 2), open(removed[0]) as named, pytest.raises(BlockingIOError):
        real(named, fcntl.LOCK_EX | fcntl.LOCK_NB)
