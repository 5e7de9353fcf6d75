"""The clock of all deadlines: it goes on while the machine is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

# Linux: CLOCK_MONOTONIC stops during suspend, so a deadline on it would be later than the lease's real expiry.
# macOS: clock_gettime(CLOCK_MONOTONIC) does count sleep; time.monotonic() does not.
CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: Seconds since some fixed point, suspend included. A partial of a C function, since each lock calls it several times.
now: Final[Callable[[], float]] = partial(time.clock_gettime, CLOCK)
