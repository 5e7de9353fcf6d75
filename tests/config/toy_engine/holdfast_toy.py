"""An engine of another distribution: the memory engine under a scheme of its own, ``toy:NAME?shelf=…``."""

from __future__ import annotations

from typing import Any, Final

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.errors import UsageError

SHELVES: Final = ("upper", "lower")


class ToyEngine(MemoryEngine):
    scheme = "toy"

    def __init__(self, url: str, shelf: str, client_options: dict[str, Any]) -> None:
        super().__init__(f"{url} {shelf}")
        self.url = url
        self.shelf = shelf
        self.client_options = client_options

    def __repr__(self) -> str:
        return f"<toy engine, shelf {self.shelf}>"


def connect(target: str, options: dict[str, Any]) -> ToyEngine:
    """See :class:`holdfast.engines.base.EngineFactory`."""
    given = dict(options)
    client_options = {name: given.pop(name) for name in ("replicas", "token_ttl", "ttl")}
    shelf = given.pop("shelf", "upper")
    if given or shelf not in SHELVES:
        raise UsageError(f"toy: has one option, shelf, which is one of {', '.join(SHELVES)}")
    return ToyEngine(target, shelf, client_options)
