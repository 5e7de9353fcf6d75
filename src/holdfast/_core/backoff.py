"""How long to pause before a failed request is repeated. Pure but for the dice, which are passed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_FIRST: Final = 0.005
_CAP: Final = 0.25


def pause(failures: int, dice: Callable[[], float]) -> float:
    """Seconds before try number ``failures + 1``: exponential, with jitter so that clients do not march in step."""
    ceiling = min(_CAP, _FIRST * 2.0 ** min(failures, 10))
    return ceiling * (0.5 + dice() / 2)
