"""What the library logs while a command runs, as lines on stderr."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.cli.output import write_error, write_notice


class _Lines(logging.Handler):
    """One line for each record; its traceback too, where that was asked for."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__(logging.DEBUG if debug else logging.WARNING)
        self._tracebacks = debug
        if not debug:  # holdfast break prints by itself what it has done
            self.addFilter(lambda record: record.name != "holdfast.operator")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            write_error(record.getMessage())
            if self._tracebacks and record.exc_info:
                write_notice(logging.Formatter().formatException(record.exc_info))
        except Exception:
            self.handleError(record)


_SILENT: Final = logging.NullHandler()


@contextmanager
def logging_to_stderr(*, debug: bool, quiet: bool = False) -> Iterator[None]:
    """Have warnings (unless ``quiet``), or with ``debug`` everything, written as the command's own lines.

    Without it, Python's last resort would write them raw, and names with them.
    """
    logger = logging.getLogger("holdfast")
    handler = logging.NullHandler() if quiet and not debug else _Lines(debug=debug)
    level = logger.level
    logger.addHandler(handler)
    if debug:
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        if quiet:
            logger.addHandler(_SILENT)  # what background threads log from here on would be written by the last resort
        logger.removeHandler(handler)
        logger.setLevel(level)
