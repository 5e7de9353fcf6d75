"""What happens to processes and to the server in the course of a run; messages have their own dice in the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from holdfast._runtime.simulated import Process, Simulator, Task
from holdfast.testing.simulation.beliefs import Beliefs
from holdfast.testing.simulation.engine_view import EngineView
from holdfast.testing.simulation.faults import Faults
from holdfast.testing.simulation.history import History
from holdfast.testing.simulation.network import Network
from holdfast.testing.simulation.orphans import Orphans

_TICK: Final = 0.2
_MOMENT: Final = 1e-6
_EXPIRY_CYCLE: Final = (0.05, 3.0)


class Nemesis:
    """Pauses, crashes, cuts, partitions, and operators who delete what they should not."""

    def __init__(
        self,
        network: Network,
        faults: Faults,
        beliefs: Beliefs,
        view: EngineView,
        orphans: Orphans,
        history: History,
        processes: Sequence[Process],
        names: Sequence[str],
        ttl: float,
    ) -> None:
        self._simulator: Simulator = network.simulator
        self._network = network
        self._faults = faults
        self._beliefs = beliefs
        self._view = view
        self._orphans = orphans
        self._history = history
        self._processes = processes
        self._names = names
        self._ttl = ttl
        self._on_process: dict[str, Callable[[Process], None]] = {
            "pause": self._pause,
            "crash": self._crash,
            "cut": self._cut,
            "partition": self._partition,
        }
        self._on_server: dict[str, Callable[[], None]] = {
            "flush": self._flush,
            "delete": self._delete,
            "restart": self._restart,
            "script_flush": network.model.forget_scripts,
        }

    def start(self) -> None:
        self._simulator.before_step = self._before_step if self._faults.plan.pause_step else None
        self._simulator.call_later(_TICK, self._tick)
        self._expire()

    def heal(self) -> None:
        """No fault from now on; those under way end as planned."""
        self._faults.healed = True
        self._simulator.before_step = None
        self._note("heal")

    def _note(self, what: str, *details: object) -> None:
        self._history.add(self._simulator.time, "nemesis", what, *details)

    def _tick(self) -> None:
        self._orphans.look()
        self._simulator.call_later(_TICK, self._tick)
        if not self._faults.healed:
            self._strike()

    def _strike(self) -> None:
        for process in self._processes:
            for kind, strike in self._on_process.items():
                if not process.dead and self._faults.strikes(kind, _TICK):
                    self._note(kind, process.name)
                    strike(process)
        for kind, act in self._on_server.items():
            if self._faults.strikes(kind, _TICK):
                self._note(kind)
                act()
                self._network.model.drain()

    def _before_step(self, task: Task) -> None:
        if self._faults.strikes("pause_step"):
            self._note("pause", task.process.name, task.name)
            self._pause(task.process)

    def _some_time(self) -> float:
        """Mostly short, sometimes several ttl."""
        dice = self._faults.dice
        return dice.uniform(0.001, 0.2) if dice.random() < 0.4 else dice.uniform(0.2, 2.5) * self._ttl

    # -- processes -----------------------------------------------------------------------------------------------------

    def _pause(self, process: Process) -> None:
        if not process.paused:
            process.pause()
            end = self._simulator.time + self._some_time()
            self._faults.lasts_until(end - _MOMENT, process)  # what it does then is no longer the fault's
            self._simulator.call_at(end, process.resume)

    def _crash(self, process: Process) -> None:
        if sum(not other.dead for other in self._processes) > 1:
            process.crash()
            self._beliefs.died(process)
            self._network.hang_up(process)

    def _cut(self, process: Process) -> None:
        self._network.cut(process)

    def _partition(self, process: Process) -> None:
        self._network.partition(process, self._some_time())

    # -- the server ----------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        self._network.before_execution()
        self._network.model.keys.expire_all()
        self._network.model.drain()
        self._simulator.call_later(self._faults.dice.uniform(*_EXPIRY_CYCLE), self._expire)

    def _rob(self, names: Sequence[str], *, all_keys: bool) -> None:
        if all_keys:
            self._orphans.tombstones_lost()
        for owner in self._view.left_model(names, all_keys=all_keys):
            self._beliefs.robbed[owner] = self._simulator.time

    def _flush(self) -> None:
        self._rob(self._names, all_keys=True)
        self._network.model.flush()

    def _delete(self) -> None:
        name = self._faults.dice.choice(self._names)
        self._rob([name], all_keys=False)
        self._network.model.delete(name.encode())

    def _restart(self) -> None:
        self._rob(self._names, all_keys=True)
        self._network.restart_server(self._faults.dice.uniform(0.0, 2.0))
