"""Locks that outlive their test would keep the threads of their clients."""

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
    """Functions of a module, and locks with a timeout, keep their clients: end their threads."""
    yield
    close_open_clients()
