"""How much earlier a lease ends for its holder than for the engine. Part of the port: core and engines use it."""

from __future__ import annotations

from typing import Final

#: Seconds, and a share of the ttl: they cover the rounding of clocks and the different rates of two clocks.
_FLOOR: Final = 0.005
_SHARE: Final = 0.01


def clock_margin(ttl: float) -> float:
    """How much earlier than the engine's expiry a lease of ``ttl`` seconds ends for its holder."""
    return max(_FLOOR, ttl * _SHARE)
