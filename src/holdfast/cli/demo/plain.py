"""The demo as lines of ASCII: for pipes, logs and terminals without cursor control."""

from __future__ import annotations

from holdfast.cli.demo.results import Freeze, Outcome, Race
from holdfast.cli.demo.view import View
from holdfast.cli.output import write_result


class Plain(View):
    """One line for each event, and one for each quarter of a race."""

    def __init__(self) -> None:
        self._race: Race | None = None
        self._quarters = 0

    def race(self, race: Race) -> None:
        if race is not self._race:
            self._race, self._quarters = race, 0
            write_result(
                f"{race.title}: {len(race.pids)} processes add 1 to the number in a file, {race.times} times each"
            )
        while 4 * race.done > (self._quarters + 1) * race.expected:
            self._quarters += 1
            write_result(f"  {race.done} of {race.expected} updates done, the file says {race.found}")

    def end_race(self, race: Race) -> None:
        write_result(f"  all {race.done} updates done, the file says {race.found}: {race.lost} lost")

    def freeze(self, freeze: Freeze) -> None:
        if len(freeze.events) == 1:
            write_result(f"{freeze.title}:")
        event = freeze.events[-1]
        write_result(f"  {event.seconds:5.2f} s  {event.actor} {event.text}")

    def close(self, outcome: Outcome) -> None:
        write_result(f"{'':16}{'updates':>9}{'in the file':>13}{'lost':>6}{'at once':>9}")
        for race in (outcome.unlocked, outcome.locked):
            write_result(f"{race.title:16}{race.done:9}{race.found:13}{race.lost:6}{race.most_at_once():9}")
        write_result(f"late write of the frozen holder: {outcome.stale_write}")
