"""``holdfast ls`` and ``holdfast show``: held locks and their holders."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.cli import lock_state
from holdfast.engines.base import Holder, LockState, Waiter
from tests.cli.command import Run, read_terminal
from tests.servers.redis import RedisServer
from tests.servers.zookeeper import ZooKeeperServer

PROGRAM = [sys.executable, "-W", "error", "-m", "holdfast.cli"]


@pytest.fixture(params=["memory", "sqlite", "redis", "zookeeper"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        return server.url
    if request.param == "zookeeper":
        ensemble: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
        return f"zookeeper://{ensemble.address}{tmp_path}"
    tmp_path.chmod(0o700)
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path}/locks.db"


@pytest.fixture
def client(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as connected:
        yield connected


def test_ls_without_locks_prints_one_line_on_stderr(run: Run, url: str) -> None:
    for form in ([], ["--json"]):
        code, out, err = run("ls", "--url", url, *form, "a\x1b")
        assert (code, out) == (0, "")
        (line,) = err.splitlines()
        assert line.startswith("holdfast ls: no lock with a name that starts with 'a\\x1b' is held on <")
    assert run("ls", "--url", url).err.startswith("holdfast ls: no lock is held on <")


def test_ls_prints_one_tab_separated_line_per_lock(run: Run, client: holdfast.Client, url: str) -> None:
    with client.lock("orders:7") as lease, client.lock("stock"):
        done = run("ls", "--url", url, "orders:")
        every = run("ls", "--url", url)
    assert (done.code, done.err) == (0, "")
    head, line = [text.split("\t") for text in done.out.splitlines()]
    assert head == ["NAME", "HOLDER", "HELD", "REMAINING", "TOKEN", "WAITERS", "KIND"]
    name, holder, held, remaining, token, waiters, kind = line
    assert (name, token, waiters, kind) == ("orders:7", str(lease.token), "0", "lock")
    assert holder.endswith(f"@{os.uname().nodename} pid {os.getpid()}")
    assert held.endswith("s")
    assert remaining.endswith("s") or url.startswith("zookeeper")
    assert [text.split("\t")[0] for text in sorted(every.out.splitlines())] == ["NAME", "orders:7", "stock"]


def test_ls_shows_the_label_beside_the_holder(run: Run, url: str) -> None:
    with holdfast.connect(url, label="billing") as client, client.lock("orders"):
        holder = run("ls", "--url", url).out.splitlines()[1].split("\t")[1]
    assert holder.endswith(f" pid {os.getpid()} [billing]")


def test_ls_json_prints_one_object_per_line(run: Run, client: holdfast.Client, url: str) -> None:
    evil = "a\x1b[31m\u202e"
    with client.lock("orders") as first, client.lock(evil) as second:
        done = run("ls", "--url", url, "--json")
    found = {one["name"]: one for one in map(json.loads, done.out.splitlines())}
    assert {name: one["holders"][0]["token"] for name, one in found.items()} == {
        "orders": first.token,
        evil: second.token,
    }
    assert found["orders"].keys() == {
        *("name", "kind", "held", "token", "remaining", "size", "free", "waiters", "holders", "queue", "conditions")
    }


def test_show_prints_every_detail_of_the_holder(run: Run, client: holdfast.Client, url: str) -> None:
    with client.lock("orders") as lease:
        done = run("show", "--url", url, "orders")
        data = run("show", "--url", url, "orders", "--json").json
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "lock 'orders': held"
    assert lines[1].startswith("held by ")
    assert f"pid {os.getpid()}" in lines[1]
    assert f"  token      {lease.token}" in lines
    assert lines[-1] == "waiters: 0"
    (holder,) = data["holders"]
    assert holder.keys() == {
        *("owner", "host", "pid", "thread", "program", "label", "since", "until", "token", "count", "mode", "value")
    }
    assert (holder["pid"], holder["token"], data["held"], data["queue"]) == (os.getpid(), lease.token, True, [])


def test_show_of_a_free_lock(run: Run, url: str) -> None:
    done = run("show", "--url", url, "orders")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("lock 'orders': free\n")
    data = run("show", "--url", url, "orders", "--json").json
    assert (data["name"], data["held"], data["holders"]) == ("orders", False, [])


def test_show_exit_code_distinguishes_free_from_held(run: Run) -> None:
    url = "memory:exit-code"
    with holdfast.connect(url) as client:
        assert run("show", "--exit-code", "--url", url, "orders").code == 1
        with client.lock("orders"):
            assert run("show", "--exit-code", "--url", url, "orders").code == 0


@pytest.mark.parametrize("name", ["a\x1b]0;title\x07", "a\nb", "\u202ea", "東 \x9b"])
def test_names_are_printed_without_terminal_escapes(run: Run, name: str) -> None:
    url = "memory:evil"
    with holdfast.connect(url) as client, client.lock(name):
        for arguments in (["ls"], ["show", name], ["break", name], ["break", name, "--token", "1"]):
            done = run(*arguments, "--url", url)
            lines = (done.out + done.err).splitlines()
            assert all(line.replace("\t", "").isprintable() for line in lines), arguments
    for arguments in (["show", name], ["break", name]):
        done = run(*arguments, "--url", url)
        assert all(line.isprintable() for line in (done.out + done.err).splitlines()), arguments


def test_names_are_printed_without_the_namespace(run: Run) -> None:
    url = "memory:spaces"
    with holdfast.connect(url, namespace="shop") as client, client.lock("orders"):
        assert run("ls", "--url", url, "--namespace", "shop", "--json").json["name"] == "orders"
        assert run("ls", "--url", url, "--json").json["name"] == "shop:orders"


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["show", ""], 64, "may not be empty"),
        (["show", "x" * 513], 64, "at most 512"),
        (["show", "\udcff"], 64, "lone surrogate"),
        (["show"], 64, "NAME"),
        (["show", "a", "b"], 64, "unrecognized"),
        (["ls", "\udcff"], 64, "surrogate"),
        (["ls", "--namespace", ""], 0, ""),
        (["ls", "--namespace", "x" * 513], 78, "namespace"),
        (["ls", "--url", ""], 78, "not a URL"),
        (["ls", "--url", "redis://joe:s3cr3t@h:x"], 78, "port"),
        (["ls", "--profile", "x"], 78, "HOLDFAST_CONFIG"),
        (["ls", "--profile", ""], 78, "profile is empty"),
        (["ls", "--url", "memory:", "--profile", "x"], 78, "both given"),
        (["ls", "--url", "redis://127.0.0.1:1?unavailable_after=0.1"], 69, "127.0.0.1:1"),
    ],
)
def test_bad_input_prints_a_one_line_error_and_the_right_exit_code(
    run: Run, arguments: list[str], code: int, message: str
) -> None:
    if "--url" not in arguments and "--profile" not in arguments:
        arguments = [*arguments, "--url", "memory:bad-input"]
    done = run(*arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "s3cr3t" not in done.err
    assert "Traceback" not in done.err
    assert code == 64 or len(done.err.splitlines()) == 1


def test_traceback_shows_no_password(run: Run) -> None:
    for url in ("redis://joe:s3cr3t@h:x", "redis://joe:s3cr3t@127.0.0.1:1?unavailable_after=0.1"):
        done = run("--debug", "ls", "--url", url)
        assert "Traceback" in done.err
        assert "s3cr3t" not in done.err


def test_configured_default_is_used(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "holdfast.toml"
    config.write_text("[profiles.a]\nurl = 'memory:configured'\n[profiles.b]\nurl = 'memory:other'\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(config))
    with holdfast.connect("memory:configured") as client, client.lock("orders"):
        assert run("ls", "--profile", "a", "--json").json["name"] == "orders"
        assert run("ls", "--profile", "b", "--json").out == ""
        monkeypatch.setenv("HOLDFAST_TLL", "5")
        assert run("ls", "--profile", "a").code == 78
        monkeypatch.delenv("HOLDFAST_TLL")
        monkeypatch.delenv("HOLDFAST_CONFIG")
        monkeypatch.setenv("HOLDFAST_URL", "memory:configured")
        assert run("ls", "--json").json["name"] == "orders"


def test_closed_reader_ends_ls_silently(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    url = f"sqlite:{tmp_path}/locks.db"
    with holdfast.connect(url) as client:
        leases = [client.lock(f"{number}").acquire() for number in range(50)]
        script = f'"$@" ls --url {url} | head -n 1; echo "${{PIPESTATUS[0]}}"'
        done = subprocess.run(["bash", "-c", script, "bash", *PROGRAM], capture_output=True, text=True, timeout=30)
        for lease in leases:
            lease.release()
    head, code = done.stdout.splitlines()
    assert head.startswith("NAME\t")
    assert code in ("0", "1"), "ls may finish before head ends"
    assert done.stderr == ""


def test_columns_are_aligned_on_a_terminal(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    url = f"sqlite:{tmp_path}/locks.db"
    ours, theirs = pty.openpty()
    with holdfast.connect(url) as client, client.lock("orders"), client.lock("stock"):
        subprocess.run([*PROGRAM, "ls", "--url", url], stdout=theirs, stdin=theirs, timeout=30, check=True)
    os.close(theirs)
    lines = read_terminal(ours).splitlines()
    assert len(lines) == 3
    assert "\t" not in "".join(lines)
    assert len({line.index("pid") for line in lines[1:]}) == 1
    assert {line.index(" pid ") > line.index("@") >= lines[0].index("HOLDER") for line in lines[1:]} == {True}


# ---- rendering


def test_waiters_are_shown_in_order_with_known_details() -> None:
    now = time.time()
    queue = (Waiter("o1", "web1", 7, "main", "sync.py", "nightly\x1b", now - 65), Waiter("o2"))
    state = LockState("orders", (Holder("o0", "web0", 6, "t", "app", now - 5, now + 25, 9, 1),), 2, 9, 25.0, queue)
    lines = list(lock_state.as_lines(state, now))
    assert lines[lines.index("waiters: 2") + 1 :] == [
        "1. waiter sync.py@web1 pid 7",
        "  thread     main",
        r"  label      nightly\x1b",
        "  owner      o1",
        lines[-4],
        "2. waiter o2",
        "  owner      o2",
        "  since      -",
    ]
    assert lines[-4].endswith(" (1m05s ago)")
    assert [one["label"] for one in lock_state.as_data(state)["queue"]] == ["nightly\x1b", None]


def test_holder_from_another_library_is_shown_by_its_owner() -> None:
    state = LockState("orders", (Holder("uuid:1\x1b", until=130.0, count=2),), 0, 7, 30.0)
    assert lock_state.as_row(state, 100.0) == ("orders", r"uuid:1\x1b", "-", "30s", "-", "0", "lock")
    assert lock_state.token_of(state) is None, "7 is the last token of holdfast, not one of this holder"


def test_kind_is_shown_with_how_it_is_held() -> None:
    reading = LockState("orders", (Holder("o", mode="read"),), kind="rwlock")
    assert lock_state.as_row(reading, 100.0)[-1] == "rwlock:read"
    permits = LockState("orders", (Holder("o", mode="permits", count=2),), kind="semaphore", size=5, free=3)
    assert lock_state.as_row(permits, 100.0)[-1] == "semaphore:2/5"
    lines = list(lock_state.as_lines(permits, 100.0))
    assert lines[0] == "semaphore 'orders': held, 3 of 5 permits free"
    assert "  mode       permits" in lines


def test_show_prints_the_values_of_leader_and_candidates(run: Run) -> None:
    url = "memory:election"
    with holdfast.connect(url) as client, client.election("scheduler", value="10.0.0.7:8080\x1b").campaign():
        done = run("show", "--url", url, "scheduler")
        (holder,) = run("show", "--url", url, "scheduler", "--json").json["holders"]
    assert r"  value      10.0.0.7:8080\x1b" in done.out.splitlines()
    assert holder["value"] == "10.0.0.7:8080\x1b"
    candidates = LockState("scheduler", queue=(Waiter("o1", value="a"), Waiter("o2")), waiters=2)
    assert list(lock_state.as_lines(candidates, 100.0)).count("  value      a") == 1
    assert [each["value"] for each in lock_state.as_data(candidates)["queue"]] == ["a", None]


def test_waiters_of_conditions_are_counted_for_each_condition() -> None:
    state = LockState("orders", conditions={"not empty": 3})
    assert list(lock_state.as_lines(state, 100.0))[-1] == "condition 'not empty': 3 waiting"
    assert lock_state.as_data(state)["conditions"] == {"not empty": 3}


def test_label_is_shown_after_the_process() -> None:
    state = LockState("orders", (Holder("o", "web1", 7, None, "holdfast", label="nightly.sh"),))
    assert lock_state.as_row(state, 100.0)[1] == "holdfast@web1 pid 7 [nightly.sh]"


def test_several_holders_show_the_first_and_count_the_others() -> None:
    holders = tuple(Holder(str(number), "h", number, None, "p", 90.0, 130.0, number, 1) for number in (1, 2, 3))
    assert lock_state.as_row(LockState("s", holders), 100.0)[1:3] == ("p@h pid 1 +2", "10s")


def test_invalid_times_from_another_program_are_shown_unchanged() -> None:
    state = LockState("orders", (Holder("o", since=1e300, until=5.0),))
    assert "  since      1e+300" in list(lock_state.as_lines(state, 10.0))
    assert "  remaining  0.0s" in list(lock_state.as_lines(state, 10.0))


@pytest.mark.parametrize(
    "seconds, shown",
    [
        (None, "-"), (float("nan"), "-"), (float("inf"), "-"), (-3, "0.0s"),
        (0.44, "0.4s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m00s"),
        (185, "3m05s"), (7500, "2h05m"), (86400 * 3 + 4 * 3600, "3d04h"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, shown: str) -> None:
    assert lock_state.duration(seconds) == shown
