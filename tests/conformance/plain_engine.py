"""An engine as a third party might write it: fewer guarantees, and a URL that holdfast does not know."""

from __future__ import annotations

import dataclasses

from holdfast.engines.memory.engine import MemoryEngine


class PlainEngine(MemoryEngine):
    """The memory engine without reserved tokens: the engine makes every grant, none is handed over in the process."""

    scheme = "plain"
    guarantees = dataclasses.replace(MemoryEngine.guarantees, fair=False)
    reserves_tokens = False
    replicates = False
    early_watch = False


def make_engine(url: str) -> PlainEngine:
    return PlainEngine(url.removeprefix("plain:"))
