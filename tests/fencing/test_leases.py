"""Real leases at a fence are judged by token and owner, not by their own state."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.fencing import Fence


def test_earlier_holder_is_refused_and_newest_holder_passes_even_after_release(fence: Fence) -> None:
    with holdfast.connect("memory:fencing") as locks:
        with locks.lock("orders") as first:
            fence.check("orders", first)
            with fence.guard("orders", first):
                pass
        fence.check("orders", first)  # released, but there is no newer holder
        with locks.lock("orders") as second, fence.guard("orders", second):
            pass
    with pytest.raises(holdfast.StaleToken) as refused, fence.guard("orders", first):
        raise AssertionError("the body ran")
    assert (refused.value.token, refused.value.seen) == (first.token, second.token)
