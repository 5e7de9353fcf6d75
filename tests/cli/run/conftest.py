"""A lock file, and runs that end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run.jobs import Jobs


@pytest.fixture
def lock_file(tmp_path: Path) -> str:
    """The URL of a lock file used only by this test."""
    directory = tmp_path / "locks"
    directory.mkdir(mode=0o700)
    return f"sqlite://{directory}/locks.db"


@pytest.fixture
def jobs(tmp_path: Path, lock_file: str) -> Iterator[Jobs]:
    """Starts runs on ``lock_file`` and checks that they leave no process at the end of the test."""
    started = Jobs(lock_file, str(tmp_path))
    yield started
    started.close()
