"""Reading a small file that a setting names: a settings file, or one that contains a URL."""

from __future__ import annotations

import os
from typing import Final

from holdfast.errors import UsageError

#: Bytes. A device or a log that is named by mistake is not read completely.
_LONGEST: Final = 64 * 1024


def read_text(path: str, where: str, content: str) -> str:
    """The text in the file ``path``; UsageError about ``where``, without any of the text, if it cannot be read.

    ``content`` describes the expected content, for errors. A byte order mark at the beginning, which some editors
    write, is removed. A pipe (``<(command)``) is read to its end. A pipe that no process writes to counts as empty.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            os.set_blocking(file.fileno(), True)
            data = file.read(_LONGEST + 1)
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror}") from error
    except ValueError:  # a NUL in the path, which only a settings file can express
        raise UsageError(f"{where} cannot be read: this is no path") from None
    if len(data) > _LONGEST:
        raise UsageError(f"{where} is longer than {_LONGEST // 1024} KiB; it should contain {content}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Not chained: the error holds the data.
        raise UsageError(f"{where} is not UTF-8; it should contain {content}") from None


def _open(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a named pipe waits for a writer, for ever if there is none.
    return os.open(path, flags | os.O_NONBLOCK)
