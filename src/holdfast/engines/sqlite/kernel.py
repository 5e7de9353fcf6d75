"""Which run of which kernel this is: what an expiry on the boot clock is worth."""

from __future__ import annotations

import os


def boot_id() -> str:
    """The same for all processes that share one boot clock, and different after a reboot.

    A time namespace moves the boot clock, so it counts as another kernel. Where the system tells neither (not Linux),
    all boots are one: then a lock of before a reboot is freed by its process's death, not by the clock.

    Not cached: a child may be forked into another time namespace. OSError if it cannot be read just now (no descriptor
    left): to take that for another kernel would be wrong.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except (FileNotFoundError, PermissionError):
        return "unknown"
    try:
        return f"{boot}/{os.stat('/proc/self/ns/time').st_ino}"
    except OSError:
        return boot
