"""What the watchdog withdraws in the background, while one server of five is dead and no withdrawal can be finished."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable

import holdfast
from tests.servers.masters import Masters


def test_an_errand_that_cannot_be_finished_does_not_keep_the_others(start_masters: Callable[[int], Masters]) -> None:
    masters = start_masters(5)
    with holdfast.connect(masters.url, ttl=20) as locks, holdfast.connect(masters.url) as others:
        leases = [locks.lock(f"n{number}").acquire() for number in range(6)]
        masters.servers[4].kill()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            leases.clear()  # dropped: the watchdog withdraws them all
            gc.collect()
        for number in range(6):
            others.lock(f"n{number}").acquire(timeout=5).release()  # and not only after 20 s
