"""What a ``memory:`` URL names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from holdfast._config.url_parts import ParsedURL, Parts, local_parameters


def parse(engine: str, parts: Parts, keywords: Mapping[str, Any]) -> ParsedURL:
    """The store's name in a memory: URL, or UsageError with the remedy."""
    own = local_parameters(parts, keywords, "memory: or memory:NAME")
    return ParsedURL(engine, unquote(parts.path), own, {}, {})


def option_names(engine: str) -> frozenset[str]:
    return frozenset()
