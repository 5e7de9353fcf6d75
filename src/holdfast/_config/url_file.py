"""A file whose only content is a URL: a mounted secret."""

from __future__ import annotations

from typing import Final

from holdfast._config.small_file import read_text
from holdfast.errors import UsageError

_CONTENT: Final = "one URL and nothing else"


def read_url(path: str, setting: str) -> str:
    """The URL in the file ``path``, which ``setting`` names; UsageError that never shows the content.

    Newlines at the end are removed: editors and ``echo`` add them.
    """
    where = f"file {path!r} ({setting})"
    text = read_text(path, where, _CONTENT).rstrip("\r\n")
    if not text.strip():
        raise UsageError(f"{where} is empty; it should contain one URL")
    if len(text.splitlines()) > 1:
        raise UsageError(f"{where} has several lines; it should contain {_CONTENT}")
    return text
