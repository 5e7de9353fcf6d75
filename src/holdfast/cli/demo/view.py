"""How the demo is shown: a live picture on a terminal, lines elsewhere, nothing with --json."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from holdfast.cli.demo.results import Freeze, Outcome, Race
from holdfast.cli.terminal import takes_a_picture


class View(Protocol):
    """Told whenever something changed; decides by itself what is worth showing."""

    def race(self, race: Race) -> None: ...

    def end_race(self, race: Race) -> None: ...

    def freeze(self, act: Freeze) -> None: ...

    def end_freeze(self, act: Freeze) -> None: ...

    def close(self, outcome: Outcome) -> None:
        """The closing table."""

    def pause(self, seconds: float) -> None:
        """Leave time to read, if somebody is watching."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def choose(*, quiet: bool) -> View:
    from holdfast.cli.demo.plain import Plain, Silent

    if quiet:
        return Silent()
    if not takes_a_picture("holdfast demo"):
        return Plain()
    from holdfast.cli.demo.live import LiveView

    return LiveView()
