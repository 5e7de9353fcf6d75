"""How the demo is shown: a live picture on a terminal, lines elsewhere, nothing with --json."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from holdfast.cli.demo.results import Freeze, Outcome, Race
from holdfast.cli.terminal import takes_a_picture


class View:
    """Shows nothing. Subclasses are called after each change and decide what to show."""

    def race(self, race: Race) -> None:
        """The race has changed."""

    def end_race(self, race: Race) -> None:
        """The race is over."""

    def freeze(self, freeze: Freeze) -> None:
        """The last of ``freeze.events`` has just happened."""

    def end_freeze(self, freeze: Freeze) -> None:
        """The second part is over."""

    def close(self, outcome: Outcome) -> None:
        """Show the summary."""

    def pause(self, seconds: float) -> None:
        """Leave time to read, if the output is a terminal."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Restore the terminal."""


def choose(*, quiet: bool) -> View:
    if quiet:
        return View()
    if not takes_a_picture("holdfast demo"):
        from holdfast.cli.demo.plain import Plain

        return Plain()
    from holdfast.cli.demo.live import LiveView

    return LiveView()
