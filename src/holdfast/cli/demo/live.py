"""The demo as a live picture, drawn by rich."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.results import Freeze, Outcome, Race, Tone
from holdfast.cli.demo.view import View
from holdfast.cli.picture import Picture

_NARROWEST_TIMELINE: Final = 8
#: Seconds between two frames. One frame for each update would be too much for a terminal on a slow connection.
_FRAME: Final = 0.08
#: Long enough to read a result.
_RESULT_PAUSE: Final = 1.2
_STYLES: Final[dict[Tone, str]] = {"plain": "", "good": "green", "bad": "bold red"}


class LiveView(View):
    """One picture for each part; a finished one stays on the screen."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        utf8 = self._console.encoding.lower().startswith("utf")
        # Different characters, not only colors: for NO_COLOR and for readers who cannot tell red from green.
        self._alone, self._together, self._outside = ("█", "▚", "·") if utf8 else ("#", "X", ".")
        self._picture = Picture(self._console)
        self._next_frame = 0.0

    def race(self, race: Race) -> None:
        if (now := time.monotonic()) >= self._next_frame:
            self._next_frame = now + _FRAME
            self._picture.draw(self._picture_of_race(race))

    def end_race(self, race: Race) -> None:
        self._end(self._picture_of_race(race))

    def freeze(self, freeze: Freeze) -> None:
        self._picture.draw(self._picture_of_freeze(freeze))

    def end_freeze(self, freeze: Freeze) -> None:
        self._end(self._picture_of_freeze(freeze))

    def close(self, outcome: Outcome) -> None:
        table = Table(title="what became of the updates", title_justify="left", title_style="bold")
        table.add_column("")
        for heading in ("updates", "in the file", "lost", "inside at once"):
            table.add_column(heading, justify="right")
        for race in (outcome.unlocked, outcome.locked):
            lost = Text(str(race.lost), _STYLES["bad" if race.lost else "good"])
            table.add_row(race.title, str(race.done), str(race.found), lost, str(race.most_at_once()))
        self._console.print(table)
        tone: Tone = "good" if outcome.stale_write == "refused" else "bad"
        self._console.print(Text("late write of the frozen holder: ").append(outcome.stale_write, _STYLES[tone]))

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._picture.__exit__(kind, error, traceback)

    def _end(self, content: RenderableType) -> None:
        self._picture.draw(content)
        self._picture.leave()
        self.pause(_RESULT_PAUSE)

    def _picture_of_race(self, race: Race) -> RenderableType:
        digits = len(str(race.times))
        labels = [f"{name} {pid}" for name, pid in zip("ABCDEFGH", race.pids, strict=False)]
        longest = max(map(len, labels))
        width = max(_NARROWEST_TIMELINE, self._console.width - longest - 2 * digits - 9)
        moments = race.timeline(width)
        lanes = Table.grid(padding=(0, 1))
        for lane, label in enumerate(labels):
            lanes.add_row(label, self._lane(lane, moments, width), f"{race.done_by(lane):{digits}}/{race.times}")
        verdict = Text(f"updates done {race.done}, the file says {race.found}: ")
        lost = max(0, race.lost)  # the file may be ahead of the messages
        verdict.append(f"{lost} lost", _STYLES["bad" if lost else "good"])
        legend = Text(f"{self._alone} alone between read and write  {self._together} with others", "dim")
        return Panel(Group(lanes, verdict, legend), title=race.title, title_align="left")

    def _lane(self, lane: int, moments: list[frozenset[int]], width: int) -> Text:
        text = Text(no_wrap=True, overflow="crop")
        text.append(self._outside * (width - len(moments)), "dim")
        for inside in moments:
            if lane not in inside:
                text.append(self._outside, "dim")
            elif len(inside) == 1:
                text.append(self._alone, _STYLES["good"])
            else:
                text.append(self._together, _STYLES["bad"])
        return text

    def _picture_of_freeze(self, freeze: Freeze) -> RenderableType:
        lines = Table.grid(padding=(0, 1))
        for event in freeze.events:
            lines.add_row(Text(f"{event.seconds:5.2f} s", "dim"), event.actor, Text(event.text, _STYLES[event.tone]))
        return Panel(lines, title=freeze.title, title_align="left")
