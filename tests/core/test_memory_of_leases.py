"""What a held lease costs in memory."""

from __future__ import annotations

import gc
import tracemalloc
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import holdfast
from holdfast._core.grant import DirectGrant

LEASES: Final = 2_000


@contextmanager
def allocated(found: list[float]) -> Iterator[None]:
    """Bytes for each of the leases that are made in the block."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        gc.collect()
        found.append((tracemalloc.get_traced_memory()[0] - before) / LEASES)
    finally:
        tracemalloc.stop()


def test_attributes_that_are_stored_late_cost_no_dictionary() -> None:
    """Regression: 800 bytes of each lease, once its first renewal had made its attempt. CPython 3.11 and 3.12 reserve
    few names of attributes after the first instances of a class."""
    found: list[float] = []
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as locks, allocated(found):
        leases = [locks.lock(f"lease:{number}").acquire() for number in range(LEASES)]
        grants = [lease._hold.grant for lease in leases]
        assert {type(grant) for grant in grants} == {DirectGrant}
        for grant in grants:
            grant.early = grant.watched = True
            assert grant.attempt.owner == grant.owner
    assert found[0] < 2048
