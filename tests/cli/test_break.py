"""``holdfast break``: the holder that was looked at, and no other."""

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

#: A third of it is how long a holder may take to notice that its lock was broken.
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
    """A terminal on which the answer is typed already, as it is written here."""
    answer = io.StringIO()
    monkeypatch.setattr(breaking, "_on_terminal", lambda: True)
    monkeypatch.setattr(sys, "stdin", answer)
    return answer


def typed(answer: io.StringIO, text: str) -> None:
    answer.write(text)
    answer.seek(0)


def lost(lease: holdfast.Lease) -> bool:
    return lease.lost.wait(10)


def test_the_holder_with_the_token_loses_the_lock(run: Run, client: holdfast.Client, url: str) -> None:
    lease = client.lock("orders").acquire()
    done = run("break", "orders", "--token", str(lease.token), "--url", url)
    assert done.code == 0
    assert done.out.startswith(f"broke lock 'orders', token {lease.token}, held by ")
    assert lost(lease)
    assert client.inspect("orders").holders == ()


def test_another_holder_keeps_the_lock(run: Run, client: holdfast.Client, url: str) -> None:
    client.lock("orders").acquire().release()
    with client.lock("orders") as lease:
        done = run("break", "orders", "--token", str(lease.token - 1), "--url", url)
        assert (done.code, done.out) == (75, "")
        assert f"with token {lease.token}" in done.err
        lease.renew()


def test_a_holder_that_comes_between_the_look_and_the_break_keeps_the_lock(
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


def test_a_free_lock_is_one_and_a_sentence(run: Run, url: str) -> None:
    for more in ([], ["--token", "5"]):
        done = run("break", "orders", "--url", url, *more)
        assert done == (1, "", "holdfast break: lock 'orders' is not held\n")


def test_the_reason_is_logged_and_printed(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    url = "memory:reason"
    with holdfast.connect(url, ttl=TTL) as client, caplog.at_level(logging.WARNING, "holdfast"):
        lease = client.lock("orders").acquire()
        done = run("break", "orders", "--token", str(lease.token), "--reason", "host is \x1b gone", "--url", url)
        assert done.out.endswith(": host is \\x1b gone\n")
        assert done.err == ""  # one line says it, not three
        assert any(r"reason: 'host is \x1b gone'" in record.getMessage() for record in caplog.records)
        assert lost(lease)
        again = client.lock("orders").acquire()
        data = run("break", "orders", "--token", str(again.token), "--reason", "why", "--url", url, "--json").json
    assert (data["name"], data["broken"], data["token"], data["reason"]) == ("orders", True, again.token, "why")
    assert data["holder"]["pid"] == os.getpid()


def test_without_a_terminal_it_refuses_and_names_the_command(run: Run) -> None:
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


def test_of_a_holder_without_token_it_is_said(run: Run, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as other:
        other.hset("orders", "b1946ac9-0000-0000-0000-000000000000:1", 1)
        other.pexpire("orders", 30_000)
        done = run("break", "orders", "--url", redis_url)
    assert done.code == 64
    assert "its holder has no token" in done.err


def test_on_a_terminal_it_shows_the_holder_and_asks(
    run: Run, client: holdfast.Client, url: str, answering: io.StringIO
) -> None:
    lease = client.lock("orders").acquire()
    typed(answering, "yes\n")
    done = run("break", "orders", "--url", url)
    assert done.code == 0
    assert done.err.startswith("lock 'orders': held\nheld by ")
    assert "Type yes to break the lock:" in done.err
    assert lost(lease)


def test_an_answer_that_cannot_be_read_breaks_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_real_terminal_is_asked(tmp_path: Path) -> None:
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
def test_what_is_no_token_is_wrong_usage(run: Run, token: str) -> None:
    done = run("break", "orders", f"--token={token}", "--url", "memory:")
    assert (done.code, done.out) == (64, "")
    assert "is no token" in done.err
