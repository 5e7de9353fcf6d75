"""Objects made before a fork, used by parent and child: each for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.support.forking import in_a_child

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.fixture(params=["sqlite", "redis"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[holdfast.Client]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/locks.db"
    else:
        url = request.getfixturevalue("redis_url")
    with holdfast.connect(url) as client:
        yield client


def test_parent_and_child_count_down_one_latch_once_each(client: holdfast.Client) -> None:
    """Regression: the child's mark passed for the parent's, whose next count_down then had no effect."""
    latch = client.latch("a", 5)
    latch.count_down()
    assert in_a_child(latch.count_down)
    latch.count_down()
    assert latch.count() == 2
    assert in_a_child(latch.count_down)
    assert latch.count() == 1


def test_child_does_not_leave_the_barrier_that_its_parent_has_entered(client: holdfast.Client) -> None:
    """Regression: the child removed the parent from the members, and gave back its permit."""
    barrier = client.barrier("a", 1)
    assert barrier.enter(10)

    def leave() -> bool:
        with pytest.raises(holdfast.LockLost) as lost:
            barrier.leave(10)
        return lost.value.reason == "forked"

    assert in_a_child(leave)
    assert client.inspect("a").holders
    assert not client.barrier("a", 1).enter(0), "the round of the parent is over"
    assert barrier.leave(10)
