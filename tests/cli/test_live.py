"""The live picture on several kinds of terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.live import Live

from holdfast.cli.demo.live import LiveView
from holdfast.cli.demo.results import Event, Freeze, Outcome, Race, Span

_RACE = Race("a race", pids=[1234567, 2], times=3, spans=[Span(0, 2, 0), Span(1, 3, 1), Span(4, 5, 0)], found=2)
_ACT = Freeze("an act", events=[Event(0.5, "A", "does something that takes more than one narrow line", "good")])
_OUTCOME = Outcome(_RACE, _RACE, "expired", "accepted")


def drawn(monkeypatch: pytest.MonkeyPatch, *, width: int, encoding: str = "utf-8") -> str:
    monkeypatch.setattr(LiveView, "pause", lambda self, seconds: None)
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with LiveView(Console(file=file, width=width, force_terminal=True, highlight=False)) as view:
        view.race(_RACE)
        view.end_race(_RACE)
        view.freeze(_ACT)
        view.end_freeze(_ACT)
        view.close(_OUTCOME)
    file.seek(0)
    return file.read()


@pytest.mark.parametrize("width", [200, 80, 36])
def test_lines_fit_the_terminal_without_losing_content(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn(monkeypatch, width=width))
    assert max(map(len, re.split(r"[\r\n]+", text))) <= width
    for part in ("a race", "1234567", "▚█", "2/3", "1 lost", "an act", "A", "accepted"):
        assert part in text


def test_no_color_setting_removes_color_and_still_shows_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    colored = drawn(monkeypatch, width=80)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = drawn(monkeypatch, width=80)
    colors = r"\x1b\[(?:\d+;)*3\dm"
    assert re.search(colors, colored)
    assert not re.search(colors, plain)
    assert "▚" in plain


def test_ascii_terminal_gets_only_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = drawn(monkeypatch, width=80, encoding="ascii")
    assert text.isascii()
    assert re.search(r"\.X", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))


def test_signal_while_the_picture_ends_still_restores_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()

    def interrupted(self: Live) -> None:
        self._started = False  # the first thing stop() does; after this it is a no-op
        raise SystemExit

    with LiveView(Console(file=file, force_terminal=True)) as view:
        view.race(_RACE)
        with monkeypatch.context() as patch:
            patch.setattr(Live, "stop", interrupted)
            with pytest.raises(SystemExit):
                view.end_race(_RACE)
    assert file.getvalue().rfind("\x1b[?25h") > file.getvalue().rfind("\x1b[?25l") > -1
