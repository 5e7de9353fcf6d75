"""The two parts of the demo: a race, without a lock and with one; then a holder that is frozen past its lease."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

from holdfast.cli.demo import counter
from holdfast.cli.demo.results import Event, Freeze, Outcome, Race, Span, Tone
from holdfast.cli.demo.view import View
from holdfast.cli.demo.worker import TTL
from holdfast.cli.demo.workers import Worker, WorkerFailed, Workers

_NAMES: Final = "ABCD"
_TIMES: Final = 75
#: A race takes a few seconds; a longer one hangs.
_LONGEST_RACE: Final = 20.0
#: Between two steps of the second part, on a terminal.
_STEP_PAUSE: Final = 0.7


def run(view: View) -> Outcome:
    """Run both parts in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as name, view:
        directory = Path(name)
        # TMPDIR may contain anything: '#', '?', '%41', bytes that are not UTF-8.
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
    with Workers(directory) as workers:
        started = [workers.start(name, "add", path, _TIMES, *([url] if url else [])) for name in _NAMES]
        for worker in started:
            workers.expect(worker, "ready")
        race = Race(title, [worker.pid for worker in started], _TIMES)
        view.race(race)
        for worker in started:
            worker.send("go")
        until = time.monotonic() + _LONGEST_RACE
        while race.done < race.expected:
            if time.monotonic() > until:
                raise WorkerFailed(f"the race {title} did not end within {_LONGEST_RACE:g} s")
            for message in workers.receive(1.0):
                entered, left = message.facts["entered"], message.facts["left"]
                race.spans.append(Span(entered, left, started.index(message.worker)))
            race.found = counter.read(path)
            view.race(race)
    view.end_race(race)
    return race


class _Timeline:
    """Records and shows the events of the second part."""

    def __init__(self, view: View) -> None:
        self.freeze = Freeze("a holder is frozen past its lease")
        self._view = view
        self._began = time.monotonic()

    def __call__(self, actor: str, text: str, tone: Tone = "plain", *, pause: float = _STEP_PAUSE) -> None:
        self.freeze.events.append(Event(time.monotonic() - self._began, actor, text, tone))
        self._view.freeze(self.freeze)
        self._view.pause(pause)


def _freeze(directory: Path, url: str, view: View) -> tuple[str | None, bool]:
    """The loss reason that the frozen holder saw after it woke, and whether its late write reached the file."""
    path, fence = directory / "frozen", directory / "fence"
    counter.write(path, 0)
    with Workers(directory) as workers:
        first, second = (workers.start(name, "hold", path, url, fence) for name in "AB")
        for worker in (first, second):
            workers.expect(worker, "ready")
        step = _Timeline(view)
        kept = _take_over(workers, first, second, step)
        first.wake()
        step("A", "is woken (SIGCONT), in the middle of its work")
        reason, landed = _write_late(workers, first, path, kept, step)
    view.end_freeze(step.freeze)
    return reason, landed


def _take_over(workers: Workers, first: Worker, second: Worker, step: _Timeline) -> int:
    """Freeze the holder until another worker has the lock and has written. Returns the value it wrote."""
    first.send("acquire")
    token = workers.expect(first, "holds").facts["token"]
    first.freeze()  # immediately: a process frozen during a renewal would block the lock file for everyone
    second.send("acquire")
    step("A", f"holds the lock, token {token}; now it is frozen (SIGSTOP)")
    step("B", f"waits until the lease of A, {TTL:g} s, has run out", pause=0)
    token = workers.expect(second, "holds").facts["token"]
    step("B", f"gets the lock, token {token}")
    second.send("write")
    kept = int(workers.expect(second, "wrote").facts["value"])
    step("B", f"writes {kept} through the fence", "good")
    return kept


def _write_late(workers: Workers, late: Worker, path: Path, kept: int, step: _Timeline) -> tuple[str | None, bool]:
    late.send("write")
    message = workers.expect(late, "lost", "wrote", "refused")
    reason = None
    if message.kind == "lost":
        reason = str(message.facts["reason"])
        step("A", f"finds that it lost the lock: LockLost, {reason!r}", "good")
        message = workers.expect(late, "wrote", "refused")
    else:
        step("A", "does not notice that it lost the lock", "bad")
    found = counter.read(path)
    landed = message.kind == "wrote" or found != kept
    if landed:
        step("A", f"writes late anyway and corrupts the file: it says {found}", "bad")
    else:
        step("A", f"writes late anyway: StaleToken, the file still says {found}", "good")
    return reason, landed
