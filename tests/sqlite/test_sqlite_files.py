"""Owner, permissions and place of the lock file, and the handling of damaged files."""

from __future__ import annotations

import fcntl
import os
import pwd
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast._runtime import clock
from holdfast._runtime.blocking import run
from holdfast.engines.base import Found, Granted, RequestFailed
from holdfast.engines.sqlite import filesystem, kernel, liveness
from holdfast.engines.sqlite.engine import connect
from holdfast.engines.sqlite.keeper import SqliteKeeper
from holdfast.engines.sqlite.liveness import Liveness
from holdfast.engines.sqlite.paths import default_path
from holdfast.engines.sqlite.session import SqliteSession
from holdfast.errors import EngineRefused
from tests.sqlite.conftest import TIMEOUT, MakeSession, Worker
from tests.sqlite.worker import make_attempt
from tests.support.leaks import open_files
from tests.support.waiting import eventually

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="statfs magic is Linux")


def mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def refusal(session: SqliteSession) -> str:
    with pytest.raises(EngineRefused) as refused:
        run(session.ping(1.0))
    return str(refused.value)


def test_all_files_are_private(session: SqliteSession, path: str) -> None:
    previous = os.umask(0)
    try:
        attempt = make_attempt("job")
        run(session.acquire(attempt, 1.0))
        contender = session.contender(make_attempt("job"), 1.0)
        run(contender.wait(clock.now() + 0.01))
    finally:
        os.umask(previous)
    assert mode(os.path.dirname(path)) == 0o700
    assert mode(path + ".d") == 0o700
    files = [path, path + "-wal", path + "-shm", *(os.path.join(path + ".d", name) for name in os.listdir(path + ".d"))]
    assert len(files) == 8  # opening, liveness, notes, heartbeat, wake-up
    assert {name: mode(name) for name in files} == dict.fromkeys(files, 0o600)
    run(contender.leave())


def test_default_file_is_under_the_home_directory_of_passwd(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, "/nowhere")
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert default_path() == os.path.join(home, ".local/state/holdfast/locks.db")
    assert connect(None, {}).path == default_path()


@pytest.mark.parametrize("bits", [0o020, 0o002])
@pytest.mark.parametrize("which", ["directory", "file", "sockets"])
def test_file_writable_by_other_users_is_refused(make_session: MakeSession, path: str, which: str, bits: int) -> None:
    first = make_session()
    run(first.ping(1.0))
    run(first.close())
    target = {"directory": os.path.dirname(path), "file": path, "sockets": path + ".d"}[which]
    os.chmod(target, mode(target) | bits)
    message = refusal(make_session())
    assert target in message
    assert "chmod" in message


def test_file_of_another_user_is_refused(make_session: MakeSession, path: str) -> None:
    if os.geteuid() == 0:
        os.mkdir(os.path.dirname(path), 0o700)
        os.chown(os.path.dirname(path), 12345, -1)
        assert "belongs to user id 12345" in refusal(make_session())
    else:
        session = connect("/locks.db", {}).session(make_session().runtime)
        assert "/" in refusal(session)


def test_symbolic_links_are_not_followed(make_session: MakeSession, path: str, tmp_path: Path) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    (tmp_path / "elsewhere").touch()
    os.symlink(tmp_path / "elsewhere", path)
    assert "symbolic link" in refusal(make_session())
    os.unlink(path)
    os.link(tmp_path / "elsewhere", path)
    assert "2 names" in refusal(make_session())
    os.unlink(path)
    os.symlink(tmp_path, path + ".d")
    assert path in refusal(make_session())


def test_directory_reached_by_a_link_is_the_same_file(path: str, tmp_path: Path) -> None:
    from holdfast._runtime.blocking import BLOCKING

    os.mkdir(os.path.dirname(path), 0o700)
    os.symlink(os.path.dirname(path), tmp_path / "link")
    one, two = (connect(p, {}).session(BLOCKING) for p in (path, str(tmp_path / "link" / "locks.db")))
    run(one.ping(1.0))
    run(two.ping(1.0))
    assert one.store(clock.now()) is two.store(clock.now())
    run(one.close())
    run(two.close())


@linux_only
@pytest.mark.parametrize(
    "magic, name", [(0x6969, "nfs"), (0x65735546, "fuse"), (0x01021997, "9p"), (0xFF534D42, "cifs")]
)
def test_shared_file_systems_are_refused(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch, magic: int, name: str
) -> None:
    monkeypatch.setattr(filesystem, "magic", lambda path: magic)
    message = refusal(make_session())
    assert f"{name}" in message
    assert "file system" in message


@linux_only
def test_magic_number_of_a_known_file_system_is_read() -> None:
    assert filesystem.magic("/proc") == 0x9FA0
    assert filesystem.magic("/nowhere/at/all") is None


def test_foreign_file_is_refused_and_unchanged(make_session: MakeSession, path: str) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    text = b"not a database, but the only copy of it " * 100
    Path(path).write_bytes(text)
    message = refusal(make_session())
    assert path in message
    assert "not an SQLite database" in message
    assert Path(path).read_bytes() == text


def test_database_of_another_program_is_refused(make_session: MakeSession, path: str) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE users (id)")
    connection.close()
    assert "another program" in refusal(make_session())


def test_file_of_a_later_version_is_refused(make_session: MakeSession, path: str) -> None:
    session = make_session()
    run(session.ping(1.0))
    run(session.close())
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    assert "version 9" in refusal(make_session())


def tear(path: str) -> None:
    """Leaves what a power cut may leave of a file that was never synced: pages that were not written."""
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))


def before_reboot(session: SqliteSession, path: str) -> int:
    granted = run(session.acquire(make_attempt("job"), 1.0))
    assert isinstance(granted, Granted)
    session.store(clock.now()).write("UPDATE meta SET value = ? WHERE key = ?", ("an earlier boot", "boot"))
    run(session.close())
    return granted.token


def test_file_torn_by_a_power_cut_is_set_aside(
    make_session: MakeSession, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = before_reboot(make_session(), path)
    tear(path)
    granted = run(make_session().acquire(make_attempt("job"), 1.0))
    assert isinstance(granted, Granted)
    assert granted.token > token
    assert os.path.exists(path + ".damaged")
    assert "damaged" in caplog.text


def zero(path: str, first: int, last: int) -> None:
    with open(path, "r+b") as file:
        file.seek(first)
        file.write(bytes(last - first))


def garble(path: str) -> None:
    with open(path, "r+b") as file:
        file.write(os.urandom(1024))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: zero(path, 0, os.path.getsize(path)),
        lambda path: zero(path, 0, 1024),
        lambda path: zero(path, 2048, 4096),
        lambda path: os.truncate(path, 1500),
        lambda path: os.truncate(path, 100),
        garble,
    ],
    ids=[
        "all zeros",
        "first page zeros",
        "inner pages zeros",
        "cut in a page",
        "cut in the header",
        "first page garbled",
    ],
)
def test_file_without_its_first_page_is_set_aside(
    make_session: MakeSession, path: str, damage: Callable[[str], None]
) -> None:
    """Regression: "not an SQLite database" until an operator deleted the file."""
    token = before_reboot(make_session(), path)
    damage(path)
    granted = run(make_session().acquire(make_attempt("job"), TIMEOUT))
    assert isinstance(granted, Granted)
    assert granted.token > token
    assert os.path.exists(path + ".damaged")


def test_damage_found_later_is_repaired_once_no_other_process_uses_the_file(
    make_session: MakeSession, path: str
) -> None:
    """A large file is not checked completely when it is opened. No message asks the user to delete it."""

    def acquire_all() -> None:
        for number in range(100):
            assert isinstance(run(session.acquire(make_attempt(f"name {number}" * 10), TIMEOUT)), Granted)

    session = make_session()
    acquire_all()
    run(session.close())
    zero(path, 6 * 1024, os.path.getsize(path))
    directory = os.open(path + ".d", os.O_RDONLY)
    other = Liveness(directory)
    session = make_session()
    with pytest.raises(EngineRefused, match="as soon as no other process uses it") as refused:
        acquire_all()
    assert "delete" not in str(refused.value)
    other.close(unlink=True)
    os.close(directory)
    acquire_all()
    assert os.path.exists(path + ".damaged")


def test_torn_file_possibly_in_use_is_refused(make_session: MakeSession, path: str) -> None:
    before_reboot(make_session(), path)
    tear(path)
    directory = os.open(path + ".d", os.O_RDONLY)
    other_process = Liveness(directory)
    try:
        assert "damaged" in refusal(make_session())
        assert not os.path.exists(path + ".damaged")
    finally:
        other_process.close(unlink=True)
        os.close(directory)


def test_deleting_the_file_breaks_its_locks(make_session: MakeSession, path: str) -> None:
    session, attempt = make_session(), make_attempt("job")
    run(session.acquire(attempt, 1.0))
    os.unlink(path)
    # Until then it renews in a file that no other process can see.
    eventually(lambda: run(session.renew(attempt, 30.0, 1.0)) == Found.GONE, 5.0, "the claim is gone")
    assert isinstance(run(session.acquire(make_attempt("job"), 1.0)), Granted)
    assert os.path.exists(path)


def test_full_disk_is_a_failed_request_that_names_the_file(session: SqliteSession, path: str) -> None:
    run(session.ping(1.0))
    connection = session.store(clock.now())._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 1")

    def fill() -> None:
        for number in range(1000):
            run(session.acquire(make_attempt(f"n{number}" * 20), 1.0))

    with pytest.raises(RequestFailed, match="disk is full") as failed:
        fill()
    assert path in str(failed.value)
    assert not failed.value.may_have_happened


def test_request_waits_for_a_foreign_transaction_and_then_times_out(
    session: SqliteSession, keeper: SqliteKeeper, path: str
) -> None:
    run(session.ping(1.0))
    # A connection in this process suffices: SQLite makes connections exclude each other like processes.
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = clock.now()
    attempt = make_attempt("job")
    with pytest.raises(RequestFailed) as failed:
        run(session.acquire(attempt, 0.2))
    assert 0.2 <= clock.now() - started < 0.2 + 1.5
    assert not failed.value.may_have_happened
    with pytest.raises(RequestFailed):
        run(session.renew(attempt, 30.0, 0.05))
    (answer,) = run(keeper.renew([attempt], 30.0, 0.05))
    assert isinstance(answer, RequestFailed)
    with pytest.raises(RequestFailed):
        run(session.ping(0.05))
    assert run(session.inspect("job", 0.05)).holders == (), "inspect does not wait for a writer"
    other.execute("ROLLBACK")
    other.close()
    assert isinstance(run(session.acquire(attempt, 1.0)), Granted)


def test_many_processes_may_create_the_file_concurrently(path: str, start_worker: Callable[[], Worker]) -> None:
    workers: list[Worker] = []
    threads = [threading.Thread(target=lambda: workers.append(start_worker())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for worker in workers:
        worker.send(do="acquire", name="job")
    assert len([worker for worker in workers if worker.answer()["token"] is not None]) == 1


def test_liveness_file_swept_before_it_was_locked_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    real = fcntl.flock
    swept: list[str] = []

    def flock(fileno: int, how: int) -> None:
        if not swept:
            swept.extend(os.listdir(tmp_path))
            os.unlink(tmp_path / swept[0])
        real(fileno, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    mine = Liveness(directory)
    assert [mine.identity] == os.listdir(tmp_path)
    assert mine.identity not in swept
    assert not liveness.is_dead(directory, mine.identity)
    mine.close(unlink=False)
    assert liveness.is_dead(directory, mine.identity)
    assert not liveness.is_dead(directory, "0" * 32), "a missing file proves nothing"
    assert not liveness.is_dead(directory, "../" + mine.identity)
    os.close(directory)


@linux_only
def test_path_too_long_for_a_socket_address_still_wakes_waiters(tmp_path: Path) -> None:
    from holdfast._runtime.blocking import BLOCKING
    from holdfast.engines.sqlite.wakeup_socket import send_wakeup

    deep = tmp_path / ("d" * 60) / ("e" * 60) / "locks.db"
    session = connect(str(deep), {}).session(BLOCKING)
    store = session.store(clock.now())
    bell = store.wakeup_socket("wait")
    assert send_wakeup(store.directory, bell.name, b"x")
    assert bell.drain() == [b"x"]
    store.close_socket(bell)
    assert not send_wakeup(store.directory, bell.name)
    run(session.close())


@pytest.mark.parametrize("length", [505, 900])
def test_path_too_long_for_sqlite_is_refused_with_its_length(tmp_path: Path, length: int) -> None:
    """Regression: the error was "too many open files?", and it was retried."""
    from holdfast._runtime.blocking import BLOCKING

    path = str(tmp_path)
    while len(path) < length - 100:
        path += "/" + "d" * 80
    path += "/" + "f" * (length - len(path) - 1)
    assert f"its path has {length} bytes" in refusal(connect(path, {}).session(BLOCKING))


@pytest.mark.parametrize("length", [247, 248, 255, 300])
def test_file_name_too_long_for_its_companion_files_is_refused(tmp_path: Path, length: int) -> None:
    from holdfast._runtime.blocking import BLOCKING

    session = connect(f"{tmp_path}/{'f' * length}", {}).session(BLOCKING)
    if length <= 247:
        run(session.ping(TIMEOUT))
        run(session.close())
    else:
        assert f"its file name has {length} bytes" in refusal(session)


def test_longest_path_works(tmp_path: Path) -> None:
    from holdfast._runtime.blocking import BLOCKING

    path = str(tmp_path)
    while len(path) < 404:
        path += "/" + "d" * 80
    path += "/" + "f" * (503 - len(path))
    session = connect(path, {}).session(BLOCKING)
    run(session.ping(TIMEOUT))
    run(session.close())


@linux_only
def test_exhausted_descriptors_are_a_failed_request_with_that_reason(make_session: MakeSession, path: str) -> None:
    """Every number of spare descriptors from none to enough: no raw error and no identity of another kernel."""
    code = f"""
import os, resource
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import RequestFailed
from holdfast.engines.sqlite.engine import connect
from tests.sqlite.worker import make_attempt
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
served = 0
for spare in range(16):
    hog = []
    try:
        while True:
            hog.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _ in range(spare):
        os.close(hog.pop())
    session = connect({path!r}, {{}}).session(BLOCKING)
    try:
        run(session.acquire(make_attempt("job", 0.1), 0.01))
        served += 1
    except RequestFailed as failure:
        assert "oo many open files" in str(failure), failure
    for fd in hog:
        os.close(fd)
    run(session.close())
assert 0 < served < 16, served
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    session = make_session()
    run(session.ping(TIMEOUT))
    store = session.store(clock.now())
    assert {boot for (boot,) in store.read("SELECT boot FROM lock", ())} == {store.boot}


def test_python_without_sqlite_gets_a_clear_error() -> None:
    code = """
import sys
sys.modules["_sqlite3"] = None
import holdfast
for url in (None, "sqlite:"):
    try:
        holdfast.connect(url)
    except holdfast.UsageError as error:
        assert "sqlite3 module" in str(error), error
    else:
        raise AssertionError
holdfast.connect("memory:").lock("job").acquire().release()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "HOME": "/nowhere"})


@linux_only
@pytest.mark.parametrize("mounted", ["locks.db", "locks.db.d"])
def test_lock_file_or_private_directory_mounted_alone_is_refused(
    make_session: MakeSession, path: str, tmp_path: Path, mounted: str
) -> None:
    """In a container with the lock *file* as a volume, log, index and liveness files differ from those outside."""
    session = make_session()
    run(session.ping(TIMEOUT))
    inside = tmp_path / "container"
    inside.mkdir(0o700)
    if mounted == "locks.db":
        (inside / mounted).touch(0o600)
    else:
        (inside / mounted).mkdir(0o700)
    code = f"""
import holdfast
try:
    holdfast.connect("sqlite:{inside}/locks.db").ping()
except holdfast.EngineRefused as error:
    assert "mount point" in str(error) and "{mounted}" in str(error), error
    print("refused")
"""
    shell = f'mount --bind {os.path.dirname(path)}/{mounted} {inside}/{mounted} && exec "$@"'
    unshared = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", shell, "-", sys.executable, "-c", code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unshare" in unshared.stderr or "mount:" in unshared.stderr:
        pytest.skip("no namespaces for this user")
    assert unshared.stdout.strip() == "refused", unshared.stderr


@linux_only
def test_mounted_directory_shares_its_locks(path: str, tmp_path: Path, session: SqliteSession) -> None:
    run(session.acquire(make_attempt("job"), TIMEOUT))
    inside = tmp_path / "container"
    inside.mkdir(0o700)
    code = f"import holdfast; print(holdfast.connect('sqlite:{inside}/locks.db').lock('job').try_acquire())"
    shell = f'mount --bind {os.path.dirname(path)} {inside} && exec "$@"'
    unshared = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", shell, "-", sys.executable, "-c", code],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unshare" in unshared.stderr or "mount:" in unshared.stderr:
        pytest.skip("no namespaces for this user")
    assert unshared.stdout.strip() == "None", unshared.stderr


@linux_only
def test_child_in_another_time_namespace_does_not_take_a_held_lock(session: SqliteSession, path: str) -> None:
    """Regression: the boot id was cached over the fork, and by the child's clock every lease had expired."""
    run(session.acquire(make_attempt("job", 600.0), TIMEOUT))
    code = f"""
import ctypes, os, sys
import holdfast
locks = holdfast.connect("sqlite:{path}")
locks.ping()
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x80):
    sys.exit("unshare: not allowed")
with open("/proc/self/timens_offsets", "w") as offsets:
    offsets.write("boottime 86400 0\\n")
if os.fork() == 0:
    print(locks.lock("job").try_acquire(), flush=True)
    os._exit(0)
os.wait()
"""
    unshared = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "unshare" in unshared.stderr:
        pytest.skip("no namespaces for this user")
    assert unshared.stdout.strip() == "None", unshared.stderr


def test_boot_id_is_the_same_in_all_processes() -> None:
    code = "from holdfast.engines.sqlite.kernel import boot_id; print(boot_id())"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == kernel.boot_id()


def test_last_session_closes_the_store_and_leaves_no_descriptor(make_session: MakeSession, path: str) -> None:
    one, two = make_session(), make_session()
    for session in (one, two):
        attempt = make_attempt("job")
        run(session.acquire(attempt, 1.0))
        run(session.release(attempt, 1.0))
    run(one.close())
    assert open_files(path) != []
    run(two.close())
    assert open_files(path) == []
    assert os.listdir(path + ".d") == ["opening"]
