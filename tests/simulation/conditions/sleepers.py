"""Invariant I6 for conditions: no live waiter sleeps beside what it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.checkers.history import Violation
from tests.simulation.checkers.holder_view import HolderView
from tests.simulation.conditions.buffer_view import NAME, BufferView
from tests.simulation.world.runtime import Process

#: After a fault or a cancellation, the lock being free: a notification waits for the presence of one that is gone to
#: end (3.5 s), and for the next look of another one (1.25 s). The rest is for messages, which may have to be repeated.
_WITHIN = 6.0


@dataclass(eq=False)
class Sleeper:
    """One call of ``wait``."""

    process: Process
    condition: str
    beside: object = None
    seconds: float = 0.0  #: for how long it could have been served, the lock being free


@dataclass
class BufferHolders(HolderView):
    """The holders of the lock; and the waiters."""

    view: BufferView | None = None
    sleeping: dict[Sleeper, None] = field(default_factory=dict)
    longest: float = 0.0
    _interrupted: float = 0.0
    _looked: float = 0.0
    _was_free: bool = False

    def interrupted(self, time: float) -> None:
        """A process was killed, or a wait cancelled."""
        self._interrupted = time

    def died(self, process: Process) -> None:
        super().died(process)
        self.interrupted(process.simulator.time)

    def look(self, time: float) -> None:
        super().look(time)
        assert self.view is not None
        passed, self._looked = time - self._looked, time
        was_free, self._was_free = self._was_free, self.view.owner(NAME) is None
        if not self.sleeping:
            return
        disturbed = max(self._interrupted, self.faults.last_disturbance()) >= self._looked - passed
        for sleeper in self.sleeping:
            beside = self.view.found_by(sleeper.condition)
            if disturbed or beside is None or beside != sleeper.beside or sleeper.process.dead:
                sleeper.beside, sleeper.seconds = beside, 0.0
            elif was_free:
                sleeper.seconds += passed
                self.longest = max(self.longest, sleeper.seconds)
                if sleeper.seconds > _WITHIN:
                    raise Violation(
                        "I6", f"{sleeper.process.name} sleeps for {sleeper.condition} beside {self.view.items}"
                    )
