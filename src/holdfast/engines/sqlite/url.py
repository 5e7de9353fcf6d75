"""URLs of the embedded engine: ``sqlite:path``, or ``sqlite:`` for the default file of the user. It has no options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from holdfast._config.url_parts import ParsedURL, Parts, local_parameters
from holdfast.errors import UsageError


def parse(engine: str, parts: Parts, keywords: Mapping[str, Any]) -> ParsedURL:
    """The path in a sqlite: URL, None for the default file; or UsageError with the remedy."""
    own = local_parameters(parts, keywords, "sqlite:///absolute/path or sqlite:relative/path")
    return ParsedURL(engine, _path(parts.path), own, {}, {})


def option_names(engine: str) -> frozenset[str]:
    return frozenset()


def _path(path: str) -> str | None:
    decoded = unquote(path, errors="surrogateescape")  # as os.fsdecode: a path is bytes, and need not be UTF-8
    if decoded == ":memory:":
        raise UsageError("sqlite::memory: cannot be shared by two clients; for locks inside one process use memory:")
    if "\0" in decoded:
        raise UsageError("the path in the sqlite URL contains a NUL character")
    return ("/" + decoded.lstrip("/") if decoded.startswith("/") else decoded) or None
