"""A live picture on a terminal, drawn by rich. Importing it needs the extra ``cli``."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live


class Picture:
    """Redrawn in place until ``leave``; after that it stays on the screen, and the next picture is drawn below it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None

    def draw(self, content: RenderableType) -> None:
        if self._live is None:
            self._live = Live(content, console=self.console, auto_refresh=False)
            self._live.start(refresh=True)
        else:
            self._live.update(content, refresh=True)

    def leave(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the terminal may be closed (SIGHUP)
            if self._live is not None:
                self._live.stop()
            self.console.show_cursor()  # a signal inside stop() leaves it hidden, and a second stop() does nothing
