"""The environment of the command, and the content of ``--report``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.run import environment, lookup
from tests.cli.run.jobs import Jobs


def test_command_environment_differs_in_five_variables_only(jobs: Jobs, tmp_path: Path) -> None:
    given = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "ODD": "a b\n'\"", "PATH": os.environ["PATH"]}
    job = jobs.start("--report", "1", "töpf", "--", "cat", "/proc/self/environ", env=given)
    out = job.process.communicate(timeout=20)[0]
    seen = dict(variable.split("=", 1) for variable in out.rpartition("\0")[0].split("\0"))
    report = json.loads(out.rpartition("\0")[2])
    assert seen.pop("HOLDFAST_NAME") == "töpf"
    assert int(seen.pop("HOLDFAST_TOKEN")) == report["token"]
    assert seen.pop("HOLDFAST_OWNER") == report["owner"]
    assert seen.pop("HOLDFAST_MODE") == "exclusive"
    assert seen.pop("HOLDFAST_HELD").endswith(":t%C3%B6pf")
    assert seen == given  # also without the LC_CTYPE that Python sets for itself


def test_variable_without_a_name_does_not_prevent_the_command(jobs: Jobs) -> None:
    done = jobs.run("x", "--", "printenv", "RUN_UNDER_TEST", wrapper=["env", "=nameless"])
    assert (done.returncode, done.stdout, done.stderr) == (0, jobs.environment["RUN_UNDER_TEST"] + "\n", "")


def test_engine_fingerprint_has_no_secret_and_depends_on_engine_and_namespace() -> None:
    marks = set()
    for url in ("redis://u:secret@h/0", "redis://u:other@h/0", "redis://h/1", "redis://h/0?namespace=n"):
        with holdfast.connect(url) as client:
            marks.add(environment.mark(client, "x"))
    assert len(marks) == 3
    assert not [mark for mark in marks if "secret" in mark]


def test_closed_stdin_stays_closed(jobs: Jobs) -> None:
    """Descriptor 0 must not be reused for the descriptor that keeps the lock."""
    look = "readlink /proc/$$/fd/0 || echo closed"
    shown = jobs.run("x", "--", "sh", "-c", look, stdin=None, preexec_fn=lambda: os.close(0))
    assert (shown.stdout, shown.returncode) == ("closed\n", 0)


def _report(jobs: Jobs, *arguments: str, **settings: Any) -> dict[str, Any]:
    reading, writing = os.pipe()
    try:
        job = jobs.start("--report", str(writing), *arguments, pass_fds=[writing], **settings)
    finally:
        os.close(writing)
    with os.fdopen(reading) as stream:
        line: dict[str, Any] = json.loads(stream.read())  # its end is the end of the runner: no one else has it
    assert job.wait() == line["exit_code"]
    return line


def test_report_of_a_command_that_ended(jobs: Jobs) -> None:
    line = _report(jobs, "x", "--", "sh", "-c", "exit 75")
    assert line["outcome"] == "ended"
    assert (line["name"], line["command_exit_code"], line["signal"], line["lost_reason"]) == ("x", 75, None, None)
    assert line["waited"] >= 0
    assert line["held"] > 0


def test_report_of_a_busy_lock(jobs: Jobs, lock_file: str) -> None:
    with holdfast.connect(lock_file) as locks, locks.lock("x").acquire():
        line = _report(jobs, "--nonblock", "x", "--", "true")
    assert (line["outcome"], line["exit_code"], line["command_exit_code"], line["token"]) == ("busy", 75, None, None)


def test_report_of_a_lost_lock(jobs: Jobs) -> None:
    # A grace that is over while the machine stalls would end the command by SIGKILL.
    line = _report(jobs, "--max-hold", "3s", "--grace", "2s", "x", "--", "sh", "-c", "exec sleep 60")
    assert (line["outcome"], line["exit_code"], line["command_exit_code"]) == ("lost", 79, 143)
    assert (line["lost_reason"], line["signal"]) == ("max_hold", 15)


@pytest.mark.parametrize("url, outcome", [("bogus://", "settings"), ("memory:", "settings")])
def test_report_of_wrong_settings(jobs: Jobs, url: str, outcome: str) -> None:
    assert _report(jobs, "x", "true", url=url)["outcome"] == outcome


@pytest.mark.alone
def test_embedded_engine_run_starts_in_150_ms(jobs: Jobs, tmp_path: Path) -> None:
    settings = jobs.environment | {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    taken, bare = [], []
    for _ in range(12):
        began = time.perf_counter()
        assert jobs.run("x", "--", "true", env=settings, stdout=subprocess.DEVNULL).returncode == 0
        taken.append(time.perf_counter() - began)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], env=settings, check=True)
        bare.append(time.perf_counter() - began)
    # Python itself starts in 10 ms. On a machine that takes longer for that, so may the command.
    assert min(taken) < 0.150 * max(1.0, min(bare) / 0.010)


@pytest.mark.parametrize(
    "words, label",
    [
        (("--", "/bin/sh", "-c", "secret=1; echo up; read line"), "sh"),
        (("-c", "echo up; read line"), "echo"),
        (("-c", "SECRET=x; echo up; read line"), None),
    ],
)
def test_lock_label_is_the_command_name(jobs: Jobs, words: tuple[str, ...], label: str | None) -> None:
    job = jobs.start("x", *words, stdin=subprocess.PIPE)
    assert job.line() == "up"
    with holdfast.connect(jobs.url) as locks:
        (holder,) = locks.inspect("x").holders
    assert holder.label == label
    busy = jobs.run("--nonblock", "x", "true")
    assert (f"label {label}" in busy.stderr) == (label is not None)
    assert job.process.stdin is not None
    job.process.stdin.close()
    job.wait()


def test_configured_label_is_kept(jobs: Jobs) -> None:
    job = jobs.start(
        "x", "--", "sh", "-c", "echo up; read line; exit 0", stdin=subprocess.PIPE, url=jobs.url + "?label=mine"
    )
    assert job.line() == "up"
    with holdfast.connect(jobs.url) as locks:
        assert locks.inspect("x").holders[0].label == "mine"
    assert job.process.stdin is not None
    job.process.stdin.close()
    assert job.wait() == 0


@pytest.mark.parametrize(
    "program, shell, label",
    [
        ("/opt/näh/nightly.sh", None, "nightly.sh"),
        ("a b", None, None),
        ("a\x1bb", None, None),
        ("\udcff", None, None),
        ("x" * 101, None, None),
        ("/bin/sh", "", None),
        ("/bin/sh", "  /opt/job --password x", "job"),
        ("/bin/sh", "$(secret)", None),
        ("/bin/sh", "'/opt/job'", None),
    ],
)
def test_only_a_plain_name_becomes_a_label(program: str, shell: str | None, label: str | None) -> None:
    assert lookup.label(program, shell) == label
