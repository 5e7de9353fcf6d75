"""Injects faults into processes and servers during a run. Faults of messages are drawn in the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Process, Task

if TYPE_CHECKING:
    from tests.simulation.world.single import World

_TICK: Final = 0.2
_MOMENT: Final = 1e-6
_EXPIRY_CYCLE: Final = (0.05, 3.0)
_OUTAGE: Final = (0.0, 3.0)
#: After a step back keys only last longer, so a small step is within the engine's model.
_STEP_BACK: Final = 0.5


class Nemesis:
    """Pauses, crashes, cuts, partitions, outages, and deletions by operators."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._simulator = world.simulator
        self._faults = world.faults
        self._processes = list(world.cores)
        self._on_process: dict[str, Callable[[Process], None]] = {
            "pause": self._pause,
            "crash": self._crash,
            "cut": self._cut,
            "partition": self._partition,
        }
        self._on_server: dict[str, Callable[[Node], None]] = {
            "flush": self._flush,
            "delete": self._delete,
            "restart": self._restart,
            "outage": self._outage,
            "clock_step": self._clock_step,
            "script_flush": lambda node: node.model.forget_scripts(),
        }

    def start(self) -> None:
        self._simulator.before_step = self._before_step if self._faults.plan.pause_step else None
        self._simulator.call_later(_TICK, self._tick)
        for node in self._world.nodes:
            self._expire(node)

    def heal(self) -> None:
        """Injects no further fault; those under way end as planned."""
        self._faults.heal()
        self._simulator.before_step = None
        self._note("heal")

    def _note(self, what: str, *details: object) -> None:
        self._world.history.add(self._simulator.time, "nemesis", what, *details)

    def _tick(self) -> None:
        self._world.orphans.look(self._simulator.time)
        self._simulator.call_later(_TICK, self._tick)
        if not self._faults.healed:
            self._inject()

    def _inject(self) -> None:
        for process in self._processes:
            for kind, act_on in self._on_process.items():
                if not process.dead and self._faults.happens(kind, _TICK):
                    self._note(kind, process.name)
                    act_on(process)
        for node in self._world.nodes:
            for kind, act in self._on_server.items():
                if node.faults.happens(kind, _TICK):
                    self._note(kind, node.name)
                    act(node)
                    node.model.drain()

    def _before_step(self, task: Task) -> None:
        if self._faults.happens("pause_step"):
            self._note("pause", task.process.name, task.name)
            self._pause(task.process)

    def _some_time(self) -> float:
        """Mostly short, sometimes several ttls."""
        dice = self._faults.dice
        return dice.uniform(0.001, 0.2) if dice.random() < 0.4 else dice.uniform(0.2, 2.5) * self._world.ttl

    # -- processes -----------------------------------------------------------------------------------------------------

    def _pause(self, process: Process) -> None:
        if not process.paused:
            process.pause()
            end = self._simulator.time + self._some_time()
            self._faults.lasts_until(end - _MOMENT, process)  # from the resume on, the fault has no effect
            self._simulator.call_at(end, process.resume)

    def _crash(self, process: Process) -> None:
        if sum(not other.dead for other in self._processes) > 1:
            self._world.crash(process)

    def _cut(self, process: Process) -> None:
        for node in self._some_servers():
            node.network.cut(process)

    def _partition(self, process: Process) -> None:
        seconds = self._some_time()
        for node in self._some_servers():
            node.network.partition(process, seconds)

    def _some_servers(self) -> Sequence[Node]:
        """One, several or all servers: a fault of a process's network may affect any part of it."""
        nodes = self._world.nodes
        return nodes if len(nodes) == 1 else self._faults.dice.sample(nodes, self._faults.dice.randint(1, len(nodes)))

    # -- servers -------------------------------------------------------------------------------------------------------

    def _expire(self, node: Node) -> None:
        node.network.before_execution()
        node.model.keys.expire_all()
        node.model.drain()
        self._simulator.call_later(self._faults.dice.uniform(*_EXPIRY_CYCLE), lambda: self._expire(node))

    def _displace(self, node: Node, names: Sequence[str], act: Callable[[], None], *, all_keys: bool) -> None:
        """Removes locks in a way that the engine's model excludes."""
        displaced = node.view.left_model(names, all_keys=all_keys)
        act()
        self._world.displaced(node, displaced)

    def _flush(self, node: Node) -> None:
        self._displace(node, self._world.names, node.model.flush, all_keys=True)

    def _delete(self, node: Node) -> None:
        name = self._faults.dice.choice(self._world.names)
        self._displace(node, [name], lambda: node.model.delete(name.encode()), all_keys=False)

    def _restart(self, node: Node) -> None:
        seconds = self._faults.dice.uniform(*self._world.restart_takes)
        displaced = node.view.left_model(self._world.names, all_keys=True)
        node.network.restart_server(seconds)
        if self._world.restart_is_harmless:
            node.view.counters_lost()
        else:
            self._world.displaced(node, displaced)

    def _outage(self, node: Node) -> None:
        node.network.restart_server(self._faults.dice.uniform(*_OUTAGE), empty=False)

    def _clock_step(self, node: Node) -> None:
        """Back a little, or forward: then the lease ends earlier on this server than was promised."""
        dice = self._faults.dice
        if dice.random() < 0.5:
            node.view.before()
            node.model.keys.expire_all()  # otherwise expired keys would be valid again for a moment
            node.ahead -= _STEP_BACK * dice.random()
            return
        displaced = [owner for name in self._world.names for owner in node.view.owners(name)]
        node.ahead += 2 * self._world.ttl * dice.random()
        node.view.before()
        self._world.displaced(node, displaced)
