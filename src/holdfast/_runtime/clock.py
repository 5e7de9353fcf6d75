"""The clock of belief: one that goes on while the machine is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

# Linux: CLOCK_MONOTONIC stands still while the lid is closed, so a lease measured by it would outlive the engine's.
# macOS: clock_gettime(CLOCK_MONOTONIC) does count sleep; time.monotonic() does not.
CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: Seconds since some fixed point, suspend included. Not a function of ours: it is read several times for each lock.
now: Final[Callable[[], float]] = partial(time.clock_gettime, CLOCK)
