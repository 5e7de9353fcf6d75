"""The identity of the running kernel: an expiry on the boot clock is only meaningful within one boot."""

from __future__ import annotations

import os


def boot_id() -> str:
    """The same for all processes that share one boot clock, and different after a reboot.

    A time namespace shifts the boot clock, so it counts as another kernel. Where the system provides neither (not
    Linux), all boots look the same: a lock from before a reboot is then freed by its process's death, not by the clock.

    Not cached: a child may be forked into another time namespace. Raises OSError if it cannot be read at present (no
    descriptor left), because treating that as another kernel would be wrong.
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
