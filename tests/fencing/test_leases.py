"""Real leases at a fence: judged by token and owner, whatever they believe."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.fencing import Fence


def test_an_earlier_holder_is_refused_and_the_newest_is_not_even_when_it_has_let_go(fence: Fence) -> None:
    with holdfast.connect("memory:fencing") as locks:
        with locks.lock("orders") as first:
            fence.check("orders", first)
            with fence.guard("orders", first):
                pass
        fence.check("orders", first)  # released, but nobody came after it
        with locks.lock("orders") as second, fence.guard("orders", second):
            pass
    with pytest.raises(holdfast.StaleToken) as refused, fence.guard("orders", first):
        raise AssertionError("the body ran")
    assert (refused.value.token, refused.value.seen) == (first.token, second.token)
