"""The examples run and print what they promise: on the embedded engine, and one also on Redis and ZooKeeper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import run_python
from tests.docs.markdown import ROOT

EXPECTED: Final = {
    "nightly_report.py": ["report.txt: written"],
    "async_worker.py": ["long: dropped (broken)", "short: done"],
    "counter.py": ["60 of 60"],
    "bounded_buffer.py": ["60 of 60 items, 0 of them twice"],
    "leader_with_standby.py": ["one: leads", "observer: one", "one: resigned", "two: leads", "observer: then two"],
    "at_most_n_workers.py": ["6 pictures, never more than 2 at once: True"],
    "cache_refresh.py": ["100 reads, 0 of them torn; 10 versions, 0 of them lost"],
    "cron_once.py": ["cleaned up, skipped, skipped"],
    "web_to_worker.py": ["request: holds it no more (False), and it is locked", "worker: holds order:7", "is free"],
}


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize(
    "example, engine",
    [
        ("nightly_report.py", "sqlite"),
        ("async_worker.py", "sqlite"),
        ("counter.py", "sqlite"),
        ("bounded_buffer.py", "sqlite"),
        ("leader_with_standby.py", "sqlite"),
        ("cron_once.py", "sqlite"),
        ("at_most_n_workers.py", "sqlite"),
        ("cache_refresh.py", "sqlite"),
        pytest.param("cache_refresh.py", "redis", marks=pytest.mark.needs_redis),
        ("web_to_worker.py", "sqlite"),
        pytest.param("web_to_worker.py", "redis", marks=pytest.mark.needs_redis),
        pytest.param("counter.py", "redis", marks=pytest.mark.needs_redis),
        pytest.param("counter.py", "zookeeper", marks=pytest.mark.needs_zookeeper),
    ],
)
def test_example_runs(example: str, engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    embedded = f"sqlite://{tmp_path}/locks.db"
    locks = embedded if engine == "sqlite" else request.getfixturevalue(f"{engine}_server").url
    settings = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    settings |= {"HOLDFAST_URL": locks, "TMPDIR": str(tmp_path)}
    printed = run_python(["-W", "error", f"examples/{example}"], env=settings)
    for line in EXPECTED[example]:
        assert line in printed
