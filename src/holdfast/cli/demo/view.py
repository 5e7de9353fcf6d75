"""How the demo is shown: a live picture on a terminal, lines elsewhere, nothing with --json."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import TracebackType
from typing import Protocol, Self

from holdfast._version import DISTRIBUTION
from holdfast.cli.demo.scene import Freeze, Outcome, Race
from holdfast.cli.output import write_error


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
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        return Plain()
    if importlib.util.find_spec("rich") is None:
        write_error(f"for the live picture: pip install '{DISTRIBUTION}[cli]'", command="holdfast demo")
        return Plain()
    from holdfast.cli.demo.live import LiveView

    return LiveView()
