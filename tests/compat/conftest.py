"""Forgets the locks that outlive their test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.compat.redis_py import outliving


@pytest.fixture(autouse=True)
def _forget_locks_with_a_timeout() -> Iterator[None]:
    yield
    outliving.leave_all()
