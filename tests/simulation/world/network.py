"""The simulated network between processes and one server: ordered connections, and their faults.

A connection keeps order in each direction, as TCP does. After a lost message its connection is dead: no message passes,
and neither side is notified. Messages under way when a connection is closed or cut may still arrive. Only
``repeat_late`` breaks the order, as a middlebox may: the copy arrives on another connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.engines.redis.scripts import Script
from tests.simulation.redis_model.keyspace import ReplyError
from tests.simulation.redis_model.server import Push, RedisModel
from tests.simulation.world.faults import Faults
from tests.simulation.world.runtime import Process, Signal, Simulator

#: Commands that have an effect on another connection too: the others change only their own connection.
_SCRIPT_CALLS: Final = (b"EVALSHA", b"EVAL")
_USUAL_DELAY: Final = (0.0001, 0.002)
_SLOW_DELAY: Final = (0.01, 0.35)


class Request:
    """One command that is under way, and its answer."""

    __slots__ = ("answered", "error", "reply", "words")

    def __init__(self, process: Process, words: Sequence[bytes]) -> None:
        self.words = words
        self.answered = Signal(process)
        self.reply: Any = None
        self.error: ReplyError | ConnectionError | None = None

    def settle(self, reply: Any, error: ReplyError | ConnectionError | None) -> None:
        if not self.answered.is_set():
            self.reply, self.error = reply, error
            self.answered.set()


class Link:
    """One connection. ``on_push`` is called with every push, and once with None when the connection is lost."""

    def __init__(self, network: Network, process: Process, on_push: Callable[[Push | None], None]) -> None:
        self.network = network
        self.process = process
        self.open = True
        self._on_push = on_push
        self._mute = False  # a message was lost: no further message passes
        self._pending: list[Request] = []
        self._arrives = [0.0, 0.0]  # last arrival at the server, at the client: order is kept
        self._server = network.model.connect(self._push)

    def send(self, words: Sequence[bytes]) -> Request:
        """Sends a command."""
        faults = self.network.faults
        request = Request(self.process, words)
        self._pending.append(request)
        if faults.happens("lose_request"):
            self._mute = True
        if self._mute:
            self._disturb()
            return request
        reply_lost = faults.happens("lose_reply")
        if words[0] in _SCRIPT_CALLS and faults.happens("repeat_late"):
            reply_lost = True
            self.network.repeat_late(self.process, words)
        self._deliver(0, lambda: self._arrive(request, reply_lost))
        return request

    def _disturb(self) -> None:
        """A message was lost: its caller waits until the request times out."""
        self.network.faults.lasts_until(self.network.simulator.time + self.network.client_timeout, self.process)

    def _deliver(self, direction: int, arrive: Callable[[], None]) -> None:
        network = self.network
        at = max(self._arrives[direction], network.simulator.time + network.delay(self.process))
        self._arrives[direction] = at
        network.simulator.call_at(at, arrive)

    def _arrive(self, request: Request, reply_lost: bool) -> None:
        network = self.network
        if self._server not in network.model.connections:
            self._disturb()
            return  # the server has closed this connection (cut, or restarted)
        reply, error = network.execute(self._server, request.words)
        if network.faults.happens("repeat"):
            network.execute(self._server, request.words)
        self._mute = self._mute or reply_lost
        if self._mute:
            self._disturb()
        else:
            self._deliver(1, lambda: self._answer(request, reply, error))
        network.model.drain()

    def _answer(self, request: Request, reply: Any, error: ReplyError | None) -> None:
        if self.open:
            self._pending.remove(request)
            request.settle(reply, error)

    def _push(self, push: Push) -> None:
        if self._mute or self.network.faults.happens("lose_push"):
            self._disturb()
        else:
            self._deliver(1, lambda: self._on_push(push) if self.open else None)

    def close(self) -> None:
        """Closes from the client's side. Requests under way may still be executed; their answers are dropped."""
        if self.open:
            self.open = False
            self._fail("the connection was closed")
            self.network.links.pop(self, None)
            self._deliver(0, lambda: self.network.model.disconnect(self._server))

    def cut(self) -> None:
        """A reset, seen by both sides. In half of the cases messages under way still arrive first."""
        if not self.open:
            return
        self._disturb()
        self.open = False
        self.network.links.pop(self, None)
        if self.network.faults.dice.random() < 0.5:
            self.network.model.disconnect(self._server)
        else:
            self._deliver(0, lambda: self.network.model.disconnect(self._server))
        self._fail("connection reset")
        self._on_push(None)

    def _fail(self, why: str) -> None:
        pending, self._pending = self._pending, []
        for request in pending:
            request.settle(None, ConnectionError(why))


class Network:
    """All connections to one server. ``client_timeout``: the longest wait of a client for an answer."""

    def __init__(
        self, simulator: Simulator, model: RedisModel, faults: Faults, ttl: float, *, client_timeout: float = 1.0
    ) -> None:
        self.simulator = simulator
        self.model = model
        self.faults = faults
        self.client_timeout = client_timeout
        self.links: dict[Link, None] = {}
        self.watches: dict[object, Process] = {}  #: watches that are not closed yet: none may be left at the end
        self.before_execution: Callable[[], None] = lambda: None
        self.after_execution: Callable[[Sequence[bytes], Any], None] = lambda words, reply: None
        self.script_names: dict[bytes, str] = {}  #: by digest and by source
        self.rewrites: dict[str, Callable[[Script], Script]] = {}  #: by name: replaced texts of shipped scripts
        self._scripts: dict[Script, Script] = {}
        self._several_ttl = 3 * ttl
        self._partitions: dict[Process, float] = {}
        self._down_until = 0.0

    def script(self, script: Script) -> Script:
        """The script that runs for ``script``: the same one, except in mutants."""
        known = self._scripts.get(script)
        if known is None:
            rewrite = self.rewrites.get(script.name)
            known = self._scripts[script] = script if rewrite is None else rewrite(script)
            self.script_names[known.sha.encode()] = self.script_names[known.source.encode()] = known.name
        return known

    # -- messages ------------------------------------------------------------------------------------------------------

    def delay(self, process: Process) -> float:
        """How long the next message to or from ``process`` takes."""
        faults, now = self.faults, self.simulator.time
        low, high = _SLOW_DELAY if faults.happens("slow") else _USUAL_DELAY
        delay = low + (high - low) * faults.dice.random()
        if faults.happens("stall"):
            delay += self._several_ttl * faults.dice.random()
        delay += max(0.0, self._partitions.get(process, 0.0) - now)
        if delay > _USUAL_DELAY[1]:
            faults.lasts_until(now + delay, process)
        return delay

    def execute(self, connection: Any, words: Sequence[bytes]) -> tuple[Any, ReplyError | None]:
        """Runs one command at the server."""
        self.before_execution()
        try:
            reply = self.model.execute(connection, words)
        except ReplyError as error:
            return None, error
        self.after_execution(words, reply)
        return reply, None

    def repeat_late(self, process: Process, words: Sequence[bytes]) -> None:
        """A copy of a request arrives much later, on another connection."""
        delay = self._several_ttl * self.faults.dice.random()
        self.faults.lasts_until(self.simulator.time + delay, process)

        def arrive() -> None:
            if self.simulator.time < self._down_until:
                return
            connection = self.model.connect(lambda push: None)
            self.execute(connection, words)
            self.model.disconnect(connection)
            self.model.drain()

        self.simulator.call_later(delay, arrive)

    # -- connections ---------------------------------------------------------------------------------------------------

    async def connect(self, process: Process, on_push: Callable[[Push | None], None], until: float) -> Link:
        """A new connection; raises ConnectionError if the server is down, TimeoutError at ``until``."""
        ready = process.simulated(until)
        arrival = self.simulator.time + self.delay(process) + self.delay(process)
        await process.wait_any((), until if arrival >= ready else process.now() + (arrival - self.simulator.time))
        if arrival >= ready:
            raise TimeoutError("no answer to the connection request")
        if self.simulator.time < self._down_until:
            raise ConnectionRefusedError("no server listens")
        link = Link(self, process, on_push)
        self.links[link] = None
        return link

    # -- faults --------------------------------------------------------------------------------------------------------

    def cut(self, process: Process) -> None:
        """Reset all connections of ``process``."""
        for link in [link for link in self.links if link.process is process]:
            link.cut()

    def hang_up(self, process: Process) -> None:
        """``process`` died: its kernel closes its connections. Messages that it has sent may still arrive."""
        for link in [link for link in self.links if link.process is process]:
            link.close()
        self.watches = {watch: owner for watch, owner in self.watches.items() if owner is not process}

    def partition(self, process: Process, seconds: float) -> None:
        """No message passes between ``process`` and the server for so long; messages arrive afterwards."""
        end = self._partitions[process] = self.simulator.time + seconds
        self.faults.lasts_until(end, process)

    def restart_server(self, seconds: float, *, empty: bool = True) -> None:
        """The server is down for so long. It restarts empty, or with its data but without scripts."""
        for link in list(self.links):
            link.cut()
        self.model.restart(empty=empty)
        self._down_until = max(self._down_until, self.simulator.time + seconds)
        self.faults.lasts_until(self._down_until)
