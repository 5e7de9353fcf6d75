"""Writes the library's log to stderr while a command runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.cli.output import write_error, write_notice


class _Lines(logging.Handler):
    """One line for each record; with ``debug`` its traceback, too."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__(logging.DEBUG if debug else logging.WARNING)
        self._tracebacks = debug
        if not debug:  # holdfast break prints its result itself
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
    """Write warnings (unless ``quiet``), or with ``debug`` all records, as lines of the command.

    Otherwise Python's handler of last resort would write them without escaping the names in them.
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
            logger.addHandler(_SILENT)  # for background threads: else the handler of last resort would write
        logger.removeHandler(handler)
        logger.setLevel(level)
