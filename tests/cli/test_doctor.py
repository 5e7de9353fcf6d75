"""The doctor on a single real server: findings, output, exit code, and no leftovers."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import cast

import pytest

import holdfast
from holdfast.cli.doctor import examine
from holdfast.cli.doctor.connection import Connection, Refused
from holdfast.cli.doctor.rights import needs
from tests.cli.doctor import Doctor
from tests.servers.clock import Clock
from tests.servers.redis import RedisServer

SECRET = "s3cr3t-p4ss"
DURABLE = ("appendonly yes", "appendfsync always")
#: The ACL rules from SECURITY.md for the namespace ``app``.
KEYS = "~app:* ~redisson_lock_token:{app:* ~holdfast_owner:{app:* ~holdfast_queue:{app:* ~holdfast_lock:{app:*"
COMMANDS = (
    "+evalsha +eval +get +set +del +exists +pexpire +pttl +time +type +hexists +hgetall +hlen +hset "
    "+lindex +lpop +lpos +lrange +lrem +rpush +publish +subscribe +unsubscribe"
)
LEAST = f"user app on >{SECRET} resetkeys resetchannels -@all {KEYS} &redisson_lock__channel:{{app:* {COMMANDS}"

StartRedis = Callable[..., RedisServer]


def as_app(server: RedisServer) -> str:
    return f"{server.url_as('app', SECRET)}?namespace=app"


def test_healthy_server_exits_with_0(start_redis: StartRedis, doctor: Doctor) -> None:
    server = start_redis(*DURABLE, password=SECRET)
    found = doctor(server.url)
    assert (found.code, found.worse_than_ok(), found.err) == (0, {}, "")
    checks = {finding["check"] for finding in found.findings}
    assert checks >= {"version", "role", "scripts", "waking", "rights", "eviction", "persistence", "clock"}
    assert {finding["node"] for finding in found.findings} == {f"127.0.0.1:{server.port}"}
    assert SECRET not in found.out
    assert server.client().dbsize() == 0, "the doctor left keys behind"


def test_warning_exits_with_3(redis_server: RedisServer, doctor: Doctor) -> None:
    found = doctor(redis_server.url)
    assert (found.code, found.worse_than_ok()) == (3, {"persistence": "warning"})


@pytest.mark.parametrize(
    "config, check",
    [
        (("maxmemory 50mb", "maxmemory-policy volatile-ttl"), "eviction"),
        (("min-replicas-to-write 1",), "writing"),
        (("maxmemory 1",), "writing"),
        (("cluster-enabled yes",), "mode"),
    ],
)
def test_problem_exits_with_4(start_redis: StartRedis, doctor: Doctor, config: tuple[str, ...], check: str) -> None:
    found = doctor(start_redis(*DURABLE, *config).url)
    assert (found.code, found.level(check)) == (4, "problem")


def test_notices_do_not_change_the_exit_code(start_redis: StartRedis, server_clock: Clock, doctor: Doctor) -> None:
    server = start_redis(*DURABLE, "timeout 60", "maxmemory-policy allkeys-lru", clock=server_clock)
    server_clock.move(-90)
    found = doctor(server.url)
    assert found.code == 0
    assert found.worse_than_ok() == {"eviction": "notice", "idle": "notice", "clock": "notice"}
    (clock,) = found.of("clock")
    offset, doubt = map(float, re.findall(r"(\d+\.\d+) s", clock["sentence"]))
    assert offset == pytest.approx(90, abs=doubt)
    assert "behind" in clock["sentence"]


class SlowTime:
    """A server whose clock is five seconds ahead and whose request and reply are each delayed."""

    def __init__(self, *delays: tuple[float, float]) -> None:
        self._delays = iter(delays)
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def ask(self, *words: str) -> list[str]:
        there, back = next(self._delays)
        self.now += there + back
        seconds, fraction = divmod(self.now - back + 5, 1)
        return [f"{seconds:.0f}", f"{fraction * 1e6:.0f}"]


def test_server_clock_is_taken_from_the_middle_of_the_fastest_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    even, uneven = (0.1, 0.1), (0.9, 0.1)
    slow = SlowTime(uneven, uneven, even, uneven, uneven)
    monkeypatch.setattr(examine, "time", slow)
    assert examine._clock(cast(Connection, slow)) == pytest.approx((5.0, 0.1))


def test_unix_socket_is_examined(start_redis: StartRedis, doctor: Doctor) -> None:
    server = start_redis(*DURABLE, password=SECRET)
    found = doctor(server.unix_url)
    assert (found.code, {finding["node"] for finding in found.findings}) == (0, {str(server.socket_path)})
    assert SECRET not in found.out


# ---- rights


def test_least_rights_suffice_and_unreadable_settings_are_reported(start_redis: StartRedis, doctor: Doctor) -> None:
    server = start_redis(LEAST)
    found = doctor(as_app(server))
    assert found.code == 0
    withheld = [finding["sentence"] for finding in found.of("withheld")]
    assert ["INFO" in withheld[0], "CONFIG GET" in withheld[1], len(withheld)] == [True, True, 2]
    assert {finding["level"] for finding in found.of("rights")} == {"notice"}
    assert server.client().dbsize() == 0, "the doctor left keys behind"
    assert SECRET not in found.out


def without(*rights: str) -> str:
    return " ".join(word for word in LEAST.split() if word not in rights)


@pytest.mark.parametrize(
    "missing, level, without_it",
    [
        (("+hset", "~redisson_lock_token:{app:*"), "problem", "releasing a lock"),
        (("+lpos",), "problem", "waiting"),
        (("+hlen",), "warning", "break_"),
        (("&redisson_lock__channel:{app:*",), "notice", "channel"),
    ],
)
@pytest.mark.parametrize("dry", ["", "+acl|whoami +acl|dryrun"], ids=["tried", "dry run"])
def test_missing_right_is_found_and_its_remedy_works(
    start_redis: StartRedis, doctor: Doctor, missing: tuple[str, ...], level: str, without_it: str, dry: str
) -> None:
    """Both ways of checking rights must find the same gap."""
    server = start_redis(f"{without(*missing)} {dry}")
    (gap,) = [finding for finding in doctor(as_app(server)).of("rights") if without_it in finding["sentence"]]
    granted = gap["remedy"].partition("(this user) ")[2].split()
    assert (gap["level"], set(granted)) == (level, set(missing))
    server.ask("ACL", "SETUSER", "app", *granted)
    assert [one for one in doctor(as_app(server)).of("rights") if without_it in one["sentence"]] == []
    assert server.client().dbsize() == 0, "the doctor left keys behind"


def test_rights_for_another_namespace_are_reported_as_missing(start_redis: StartRedis, doctor: Doctor) -> None:
    found = doctor(start_redis(LEAST).url_as("app", SECRET) + "?namespace=other")
    assert found.code == 4
    assert "~redisson_lock_token:{other:*" in found.of("rights")[0]["remedy"]


def test_table_of_rights_is_complete_and_documented() -> None:
    """The table covers every command of the scripts and no right that SECURITY.md does not name."""
    scripts = resources.files("holdfast.engines.redis").joinpath("scripts")
    lua = "".join(script.read_text("utf-8") for script in scripts.iterdir() if script.name.endswith(".lua"))
    used = {command.lower() for command in re.findall(r"\bp?call\(\s*['\"](\w+)['\"]", lua)}
    assert used <= {need.words[0] for need in needs("x", "", clustered=True)}
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text("utf-8").replace("\\", "")
    assert {need.right for need in needs("x", "")} <= set(re.findall(r"\+[a-z|]+", text))


def test_commands_that_could_leave_keys_behind_are_not_tried(start_redis: StartRedis, doctor: Doctor) -> None:
    """With HSET and RPUSH but neither SET nor DEL, a key that they create could never be removed."""
    server = start_redis(f"user app on >{SECRET} ~* -@all +eval +evalsha +hset +rpush")
    found = doctor(as_app(server))
    assert found.code == 4
    assert "+set" in found.of("rights")[0]["remedy"]
    assert server.client().dbsize() == 0, "the doctor left keys behind"


def test_refusal_does_not_name_the_user() -> None:
    """Newer servers name the user in the refusal; the output must not repeat it."""
    assert "bob" not in str(Refused("NOPERM User bob has no permissions to run the 'info' command"))


def test_wakeup_method_is_reported(start_redis: StartRedis, doctor: Doctor) -> None:
    tracking = "+client|tracking +client|caching ~holdfast_probe:{app:*"
    assert doctor(as_app(start_redis(f"{LEAST} {tracking}"))).level("waking") == "ok"
    assert doctor(as_app(start_redis(without("+subscribe")))).level("waking") == "warning"


def test_managed_service_without_config_command_is_examined(start_redis: StartRedis, doctor: Doctor) -> None:
    found = doctor(start_redis(*DURABLE, 'rename-command CONFIG ""').url)
    assert (found.code, found.worse_than_ok()) == (0, {"withheld": "notice"})


# ---- no server to examine


def test_wrong_password_is_reported(start_redis: StartRedis, doctor: Doctor) -> None:
    server = start_redis(password=SECRET)
    found = doctor(f"redis://:{SECRET}x@127.0.0.1:{server.port}")
    assert (found.code, found.out) == (77, "")
    assert str(server.port) in found.err
    assert SECRET not in found.err


@pytest.mark.parametrize("fate", ["kill", "pause"])
def test_unreachable_server_is_reported(start_redis: StartRedis, doctor: Doctor, fate: str) -> None:
    server = start_redis()
    getattr(server, fate)()
    start = time.monotonic()
    found = doctor(f"{server.url}?request_timeout=0.5")
    assert (found.code, found.out) == (69, "")
    assert found.err.startswith("holdfast: no server could be examined")
    assert time.monotonic() - start < 5


def test_server_without_resp3_is_reported(doctor: Doctor) -> None:
    """Like a Redis before 6, or a proxy that does not support HELLO."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"-ERR unknown command 'HELLO', with args beginning with: '3' \r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        found = doctor(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        thread.join(5)
    assert found.code == 77
    assert "needs RESP3" in found.err


@pytest.mark.parametrize("url", ["redsi://h", "redis://h?nonsense=1", f"redis://u:{SECRET}@h:x"])
def test_wrong_url_exits_with_78(doctor: Doctor, url: str) -> None:
    found = doctor(url)
    assert (found.code, found.out) == (78, "")
    assert found.err.startswith("holdfast: ")
    assert SECRET not in found.err


# ---- without a server, without a URL


def test_memory_and_lock_files_are_examined(doctor: Doctor, tmp_path: Path) -> None:
    assert doctor("memory:").worse_than_ok() == {"scope": "notice"}
    tmp_path.chmod(0o700)
    file = tmp_path / "locks.db"
    found = doctor(f"sqlite:{file}")
    assert (found.code, found.worse_than_ok()) == (0, {"scope": "notice"})
    assert not file.exists(), "the examination must not create the file"
    file.touch(0o666)
    file.chmod(0o666)
    assert doctor(f"sqlite:{file}").level("file") == "problem"
    file.chmod(0o600)
    assert doctor(f"sqlite:{file}").level("file") == "ok"


def tree(directory: Path) -> dict[str, bytes]:
    """Returns all directories and files below, with the contents of the files."""
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(directory.rglob("*"))}


@pytest.fixture
def private(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir(mode=0o700)
    return directory


def make(kind: str, private: Path) -> Path:
    """Creates a place for a lock file where every lock is refused."""
    file = private / "locks.db"
    if kind == "directory that others may write to":
        private.chmod(0o777)
    elif kind == "text":
        file.write_text("not a database\n")
    elif kind == "database of another program":
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE theirs (x)")
            database.commit()
    elif kind == "empty file that others may write to":
        file.touch()
        file.chmod(0o666)
        return file
    elif kind == "link":
        file.symlink_to("elsewhere")
    elif kind == "directory":
        file.mkdir()
    elif kind == "below a file":
        file.write_text("")
        return file / "deeper" / "locks.db"
    if file.is_file():
        file.chmod(0o600)
    return file


@pytest.mark.parametrize(
    "kind",
    [
        "directory that others may write to", "text", "database of another program",
        "empty file that others may write to", "link", "directory", "below a file",
    ],
)  # fmt: skip
def test_place_where_every_lock_is_refused_is_reported_and_left_unchanged(
    kind: str, private: Path, doctor: Doctor
) -> None:
    file = make(kind, private)
    before = tree(private)
    found = doctor(f"sqlite:{file}")
    assert (found.code, found.level("file")) == (4, "problem")
    assert "holdfast-doctor" not in found.out, "the output must name the file given by the user"
    assert tree(private) == before
    with holdfast.connect(f"sqlite:{file}") as locks, pytest.raises(holdfast.EngineRefused):
        locks.lock("x").acquire(timeout=0)


@pytest.mark.parametrize("name", ["locks.db", "not/there/yet/locks.db", "empty.db", "x" * 200])
def test_usable_place_is_examined_without_creating_a_lock_file(name: str, private: Path, doctor: Doctor) -> None:
    (private / "empty.db").touch(0o600)
    before = tree(private)
    file = private / name
    found = doctor(f"sqlite:{file}")
    assert (found.code, found.level("file")) == (0, "ok")
    assert tree(private) == before
    with holdfast.connect(f"sqlite:{file}") as locks:
        locks.lock("x").acquire(timeout=0).release()


def test_lock_file_in_use_keeps_its_locks_and_gets_no_new_ones(private: Path, doctor: Doctor) -> None:
    url = f"sqlite:{private / 'locks.db'}"
    with holdfast.connect(url) as locks, locks.lock("mine") as lease:
        # From another process, like a user.
        done = subprocess.run([sys.executable, "-m", "holdfast.cli", "doctor", url], capture_output=True, timeout=30)
        assert (done.returncode, done.stderr) == (0, b"")
        lease.renew()
        assert [state.name for state in locks.locks()] == ["mine"]
    with closing(sqlite3.connect(private / "locks.db")) as database:
        assert database.execute("SELECT name FROM lock").fetchall() == [("mine",)]


@pytest.mark.parametrize("url, code, message", [("memory:", 0, ""), ("sqlite:x", 78, "needs Python's sqlite3 module")])
def test_python_without_sqlite3_gets_a_one_line_error(url: str, code: int, message: str) -> None:
    script = (
        "import sys; sys.modules['_sqlite3'] = None\n"
        f"from holdfast.cli.main import main; sys.exit(main(['doctor', {url!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert message in done.stderr


def test_configured_default_is_examined(
    start_redis: StartRedis, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis(*DURABLE, password=SECRET)
    monkeypatch.setenv("HOLDFAST_URL", server.url)
    monkeypatch.setenv("HOLDFAST_REPLICAS", "1")
    found = doctor()
    assert found.worse_than_ok() == {"acknowledgement": "problem"}
    assert SECRET not in found.out


def test_url_option_and_profile_select_the_target(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "holdfast.toml"
    config.write_text("[profiles.a]\nurl = 'memory:'\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(config))
    for arguments in (["--url", "memory:"], ["--profile", "a"]):
        assert doctor(*arguments).worse_than_ok() == {"scope": "notice"}
    assert doctor("memory:", "--url", "memory:").code == 64
    assert doctor("memory:", "--profile", "a").code == 78


# ---- text output


def test_text_output(start_redis: StartRedis) -> None:
    server = start_redis("maxmemory 50mb", "maxmemory-policy allkeys-lru", password=SECRET)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-m", "holdfast.cli", "doctor", server.url],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (4, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"holdfast doctor: redis://127.0.0.1:{server.port}/0"
    assert f"127.0.0.1:{server.port}" in lines
    at = next(at for at, line in enumerate(lines) if line.startswith("  problem  eviction"))
    assert lines[at + 1].strip().startswith("-> set maxmemory-policy noeviction")
    assert lines[-1] == "verdict: 1 problem, 1 warning"
    assert SECRET not in done.stdout
    assert done.stdout.isascii()
