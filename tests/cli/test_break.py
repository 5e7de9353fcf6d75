"""``holdfast break``: frees the lock from the holder shown to the user, and from no other."""

from __future__ import annotations

import io
import logging
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import holdfast
from holdfast.cli import breaking
from tests.cli.command import Run, read_terminal

#: A holder may take a third of its ttl to notice that its lock was broken.
TTL = 3
PROGRAM = [sys.executable, "-W", "error", "-m", "holdfast.cli"]


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    tmp_path.chmod(0o700)
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:{tmp_path}/locks.db"


@pytest.fixture
def client(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url, ttl=TTL) as connected:
        yield connected


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal on which the answer has already been typed."""
    answer = io.StringIO()
    monkeypatch.setattr(breaking, "_on_terminal", lambda: True)
    monkeypatch.setattr(sys, "stdin", answer)
    return answer


def typed(answer: io.StringIO, text: str) -> None:
    answer.write(text)
    answer.seek(0)


def lost(lease: holdfast.Lease) -> bool:
    return lease.lost.wait(10)


def test_holder_with_the_given_token_loses_the_lock(run: Run, client: holdfast.Client, url: str) -> None:
    lease = client.lock("orders").acquire()
    done = run("break", "orders", "--token", str(lease.token), "--url", url)
    assert done.code == 0
    assert done.out.startswith(f"broke lock 'orders', token {lease.token}, held by ")
    assert lost(lease)
    assert client.inspect("orders").holders == ()


def test_result_says_what_kind_of_object_was_broken(run: Run) -> None:
    url = "memory:break-kinds"
    with holdfast.connect(url) as client:
        lease = client.semaphore("exports", 2).acquire()
        done = run("break", "exports", "--token", str(lease.token), "--url", url)
        assert done.out.startswith(f"broke semaphore 'exports', token {lease.token}, held by ")
        assert lost(lease)


def test_holder_with_another_token_keeps_the_lock(run: Run, client: holdfast.Client, url: str) -> None:
    client.lock("orders").acquire().release()
    with client.lock("orders") as lease:
        done = run("break", "orders", "--token", str(lease.token - 1), "--url", url)
        assert (done.code, done.out) == (75, "")
        assert f"with token {lease.token}" in done.err
        lease.renew()


def test_new_holder_between_inspection_and_break_keeps_the_lock(
    run: Run, client: holdfast.Client, url: str, answering: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(answering, "yes\n")
    first = client.lock("orders").acquire()
    taken: list[holdfast.Lease] = []
    confirmed = breaking._confirmed

    def change(*arguments: object) -> bool:
        first.release()
        taken.append(client.lock("orders").acquire())
        return confirmed(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(breaking, "_confirmed", change)
    done = run("break", "orders", "--url", url)
    assert done.code == 75
    taken[0].renew()
    taken[0].release()


def test_breaking_a_free_lock_exits_with_1_and_a_one_line_message(run: Run, url: str) -> None:
    for more in ([], ["--token", "5"]):
        done = run("break", "orders", "--url", url, *more)
        assert done == (1, "", "holdfast break: lock 'orders' is not held\n")


def test_reason_is_logged_and_printed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    url = "memory:reason"
    with holdfast.connect(url, ttl=TTL) as client, caplog.at_level(logging.WARNING, "holdfast"):
        lease = client.lock("orders").acquire()
        done = run("break", "orders", "--token", str(lease.token), "--reason", "host is \x1b gone", "--url", url)
        assert done.out.endswith(": host is \\x1b gone\n")
        assert done.err == ""  # printed once, not also as a log line
        assert any(r"reason: 'host is \x1b gone'" in record.getMessage() for record in caplog.records)
        assert lost(lease)
        again = client.lock("orders").acquire()
        data = run("break", "orders", "--token", str(again.token), "--reason", "why", "--url", url, "--json").json
    assert (data["name"], data["broken"], data["token"], data["reason"]) == ("orders", True, again.token, "why")
    assert data["holder"]["pid"] == os.getpid()


def test_break_without_a_terminal_refuses_and_prints_the_full_command(run: Run) -> None:
    url = "memory:refuse"
    with holdfast.connect(url, namespace="shop", ttl=TTL) as client:
        lease = client.lock("two words").acquire()
        done = run("break", "two words", "--url", url, "--namespace", "shop")
        assert (done.code, done.out) == (64, "")
        assert ", with the same --url, " in done.err
        words = shlex.split("holdfast break --n" + done.err.partition("holdfast break --n")[2])
        assert words == ["holdfast", "break", "--namespace", "shop", "--token", str(lease.token), "--", "two words"]
        assert lease.held
        lease.renew()
        assert run(*words[1:-2], "--url", url, *words[-2:]).code == 0, "the command that it named"
        assert lost(lease)


def test_holder_without_a_token_is_reported(run: Run, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as other:
        other.hset("orders", "b1946ac9-0000-0000-0000-000000000000:1", 1)
        other.pexpire("orders", 30_000)
        done = run("break", "orders", "--url", redis_url)
    assert done.code == 64
    assert "its holder has no token" in done.err


def test_break_on_a_terminal_shows_the_holder_and_asks(
    run: Run, client: holdfast.Client, url: str, answering: io.StringIO
) -> None:
    lease = client.lock("orders").acquire()
    typed(answering, "yes\n")
    done = run("break", "orders", "--url", url)
    assert done.code == 0
    assert done.err.startswith("lock 'orders': held\nheld by ")
    assert "Type yes to break the lock:" in done.err
    assert lost(lease)


def test_unreadable_answer_breaks_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "memory:unreadable"
    monkeypatch.setattr(breaking, "_on_terminal", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"yes\xff\n"), "utf-8"))
    with holdfast.connect(url) as client, client.lock("orders") as lease:
        assert run("break", "orders", "--url", url).code == 1
        lease.renew()


@pytest.mark.parametrize("answer", ["", "\n", "y\n", "no\n", "orders\n"])
def test_any_other_answer_breaks_nothing(run: Run, answering: io.StringIO, answer: str) -> None:
    url = "memory:declined"
    typed(answering, answer)
    with holdfast.connect(url) as client, client.lock("orders") as lease:
        done = run("break", "orders", "--url", url)
        assert (done.code, done.out) == (1, "")
        assert done.err.endswith("holdfast break: not confirmed: nothing was broken\n")
        lease.renew()


def test_real_terminal_is_asked(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    url = f"sqlite:{tmp_path}/locks.db"
    ours, theirs = pty.openpty()
    with holdfast.connect(url) as client, client.lock("orders") as lease:
        with subprocess.Popen(
            [*PROGRAM, "break", "orders", "--url", url], stdin=theirs, stderr=theirs, stdout=subprocess.PIPE
        ) as process:
            os.close(theirs)
            os.write(ours, b"no\n")
            assert process.wait(20) == 1
        assert "Type yes to break the lock:" in read_terminal(ours)
        lease.renew()


@pytest.mark.parametrize("token", ["", "-1", "1.5", "x", "1" * 20, "\u0661"])
def test_invalid_token_is_wrong_usage(run: Run, token: str) -> None:
    done = run("break", "orders", f"--token={token}", "--url", "memory:")
    assert (done.code, done.out) == (64, "")
    assert "is no token" in done.err
