"""Ends the clients of locks that outlive their test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.compat.redis_py import outliving
from tests.support.leaks import close_open_clients


@pytest.fixture(autouse=True)
def _forget_locks_with_a_timeout() -> Iterator[None]:
    yield
    outliving.leave_all()


@pytest.fixture(autouse=True, scope="module")
def _end_clients() -> Iterator[None]:
    """Module-level functions and locks with a timeout keep their clients alive: end the threads of those clients."""
    yield
    close_open_clients()
