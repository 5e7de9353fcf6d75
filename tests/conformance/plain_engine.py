"""An engine as a third party might write it: it promises less, and holdfast does not know its URL."""

from __future__ import annotations

import dataclasses

from holdfast.engines.memory import MemoryEngine


class PlainEngine(MemoryEngine):
    """The memory engine without blocks of tokens: every grant is the engine's own, none is handed on in the process."""

    scheme = "plain"
    guarantees = dataclasses.replace(MemoryEngine.guarantees, fair=False)
    reserves_tokens = False
    replicates = False
    early_watch = False


def make_engine(url: str) -> PlainEngine:
    return PlainEngine(url.removeprefix("plain:"))
