"""A file whose only content is a URL: a mounted secret."""

from __future__ import annotations

from typing import Final

from holdfast.errors import UsageError

#: Bytes. No URL is longer; a device or a log named by mistake is not read to its end.
_LONGEST: Final = 64 * 1024


def read_url(path: str, setting: str) -> str:
    """The URL in the file ``path``, which ``setting`` names; UsageError that never shows the content.

    Newlines at the end are removed: editors and ``echo`` add them.
    """
    where = f"file {path!r} ({setting})"
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST + 1)
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror}") from error
    except ValueError:  # a NUL in the path, which only a settings file can express
        raise UsageError(f"{where} cannot be read: this is no path") from None
    if len(content) > _LONGEST:
        raise UsageError(f"{where} is longer than any URL; it should contain one URL and nothing else")
    try:
        text = content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        # Not chained: the error holds the content.
        raise UsageError(f"{where} is not UTF-8; it should contain one URL and nothing else") from None
    if not text.strip():
        raise UsageError(f"{where} is empty; it should contain one URL")
    if len(text.splitlines()) > 1:
        raise UsageError(f"{where} has several lines; it should contain one URL and nothing else")
    return text
