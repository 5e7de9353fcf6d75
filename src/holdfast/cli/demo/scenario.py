"""The two acts."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdfast.cli.demo import counter
from holdfast.cli.demo.results import Freeze, Line, Mood, Outcome, Race, Span
from holdfast.cli.demo.view import View
from holdfast.cli.demo.worker import TTL
from holdfast.cli.demo.workers import Crew, Worker, WorkerFailed

_NAMES: Final = "ABCD"
_TIMES: Final = 75
#: A race takes a few seconds. Longer than this, something hangs.
_LONGEST_RACE: Final = 20.0
#: Between two steps of act two, where somebody watches.
_BEAT: Final = 0.7


def play(view: View) -> Outcome:
    """Both acts, in a fresh directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as name, view:
        directory = Path(name)
        # TMPDIR may contain anything: '#', '?', '%41', bytes that are no UTF-8.
        url = f"sqlite:{quote(os.fsencode(directory / 'locks.db'))}"
        unlocked = _race("without a lock", directory, None, view)
        locked = _race("with holdfast", directory, url, view)
        loss_reason, landed = _freeze(directory, url, view)
        outcome = Outcome(unlocked, locked, loss_reason, "accepted" if landed else "refused")
        view.close(outcome)
    return outcome


def _race(title: str, directory: Path, url: str | None, view: View) -> Race:
    path = directory / title.replace(" ", "-")
    counter.write(path, 0)
    with Crew(directory) as crew:
        workers = [crew.start(name, "add", path, _TIMES, *([url] if url else [])) for name in _NAMES]
        for worker in workers:
            crew.expect(worker, "ready")
        race = Race(title, [worker.pid for worker in workers], _TIMES)
        view.race(race)
        for worker in workers:
            worker.tell("go")
        until = time.monotonic() + _LONGEST_RACE
        while race.done < race.expected:
            if time.monotonic() > until:
                raise WorkerFailed(f"the race {title} did not end within {_LONGEST_RACE:g} s")
            for message in crew.listen(1.0):
                entered, left = message.facts["entered"], message.facts["left"]
                race.spans.append(Span(entered, left, workers.index(message.worker)))
            race.found = counter.read(path)
            view.race(race)
    view.end_race(race)
    return race


class _Narrator:
    """Tells act two, line by line, to the view."""

    def __init__(self, view: View) -> None:
        self.act = Freeze("a holder is frozen past its lease")
        self._view = view
        self._began = time.monotonic()

    def __call__(self, actor: str, text: str, mood: Mood = "plain", *, beat: float = _BEAT) -> None:
        self.act.lines.append(Line(time.monotonic() - self._began, actor, text, mood))
        self._view.freeze(self.act)
        self._view.pause(beat)


def _freeze(directory: Path, url: str, view: View) -> tuple[str | None, bool]:
    """What the frozen holder was told when it woke, and whether its late write reached the file."""
    path, fence = directory / "frozen", directory / "fence"
    counter.write(path, 0)
    with Crew(directory) as crew:
        first, second = (crew.start(name, "hold", path, url, fence) for name in "AB")
        for worker in (first, second):
            crew.expect(worker, "ready")
        tell = _Narrator(view)
        kept = _take_over(crew, first, second, tell)
        first.wake()
        tell("A", "is woken (SIGCONT), in the middle of its work")
        reason, landed = _write_late(crew, first, path, kept, tell)
    view.end_freeze(tell.act)
    return reason, landed


def _take_over(crew: Crew, first: Worker, second: Worker, tell: _Narrator) -> int:
    """Freeze the holder until another one has the lock and has written: what it wrote."""
    first.tell("acquire")
    token = crew.expect(first, "holds").facts["token"]
    first.freeze()  # at once: frozen in the middle of a renewal it would hold the engine's own lock
    second.tell("acquire")
    tell("A", f"holds the lock, token {token}; now it is frozen (SIGSTOP)")
    tell("B", f"waits until the lease of A, {TTL:g} s, has run out", beat=0)
    token = crew.expect(second, "holds").facts["token"]
    tell("B", f"gets the lock, token {token}")
    second.tell("write")
    kept = int(crew.expect(second, "wrote").facts["value"])
    tell("B", f"writes {kept} through the fence", "good")
    return kept


def _write_late(crew: Crew, late: Worker, path: Path, kept: int, tell: _Narrator) -> tuple[str | None, bool]:
    late.tell("write")
    message = crew.expect(late, "lost", "wrote", "refused")
    reason = None
    if message.kind == "lost":
        reason = str(message.facts["reason"])
        tell("A", f"finds that it lost the lock: LockLost, {reason!r}", "good")
        message = crew.expect(late, "wrote", "refused")
    else:
        tell("A", "was not told that it lost the lock", "bad")
    found = counter.read(path)
    landed = message.kind == "wrote" or found != kept
    if landed:
        tell("A", f"writes late all the same, and spoils the file: it says {found}", "bad")
    else:
        tell("A", f"writes late all the same: StaleToken, the file still says {found}", "good")
    return reason, landed
