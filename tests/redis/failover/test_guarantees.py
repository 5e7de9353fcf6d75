"""The guarantees of each Redis topology, as data. No server is needed."""

from __future__ import annotations

from typing import Final

import pytest

import holdfast
from holdfast.engines.base import Guarantees

HOSTS: Final = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
SINGLE: Final = "redis://127.0.0.1:1"
SENTINEL: Final = f"redis+sentinel://{HOSTS}/mymaster"
CLUSTER: Final = f"redis+cluster://{HOSTS}"
REDLOCK: Final = f"redlock://{HOSTS}"


def guarantees(url: str) -> Guarantees:
    with holdfast.connect(url) as locks:
        return locks.guarantees


@pytest.mark.parametrize("url", [SENTINEL, CLUSTER])
def test_replicas_shorten_the_time_a_loss_may_go_unnoticed(url: str) -> None:
    without, having = guarantees(url), guarantees(f"{url}?replicas=1")
    assert "until the partition heals" in without.loss_bound
    assert "until the partition heals" not in having.loss_bound
    assert having.loss_bound.startswith("the ttl")
    assert without.loss_bound != guarantees(SINGLE).loss_bound


def test_single_server_states_the_effect_of_a_restart() -> None:
    assert "restart without disk" in guarantees(SINGLE).loss_bound


@pytest.mark.parametrize("url", [SINGLE, SENTINEL, f"{SENTINEL}?replicas=2", CLUSTER, f"{CLUSTER}?replicas=2", REDLOCK])
def test_only_redlock_survives_a_failover(url: str) -> None:
    """Acknowledgement narrows the loss; an acknowledged write may still be lost with the wrong replica promoted."""
    found = guarantees(url)
    assert found.survives_failover is (url == REDLOCK)
    assert found.survives_restart is False
    assert found.fencing
    assert found.cross_host
    assert found.fair is (url != REDLOCK)
    with holdfast.connect(url) as locks:
        if found.survives_failover:
            assert locks.lock("job", require={"survives_failover"}).name == "job"
        else:
            with pytest.raises(holdfast.UsageError, match="survives_failover"):
                locks.lock("job", require={"survives_failover"})
