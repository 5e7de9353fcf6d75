"""The simulated channel: the Redis engine's port to a server, on the simulated network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import ALL_NAMES, RequestFailed, Suspects
from holdfast.engines.redis.dialect import pushes
from holdfast.engines.redis.dialect.keys import WAKE
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Answer, out_of_time
from holdfast.engines.redis.dialect.replies import error as error_of_reply
from holdfast.engines.redis.dialect.requests import Call, Opening, Packed, Publish
from holdfast.engines.redis.waiting.watch import Wakes
from holdfast.errors import EngineRefused
from tests.simulation.client.wire import Flight, Wire, run, words_of
from tests.simulation.redis_model.keyspace import ReplyError
from tests.simulation.redis_model.server import Push
from tests.simulation.world.network import Network
from tests.simulation.world.runtime import Signal, SimulatedRuntime


class SeatLine:
    """A connection for waiters, one after the other. It stays open: what was pushed to one may arrive at the next."""

    def __init__(self, runtime: SimulatedRuntime, network: Network, *, tracking: bool) -> None:
        greeting = ["CLIENT", "TRACKING", "ON", "OPTIN"] if tracking else ()
        self.wire = Wire(runtime, network, greeting, self._pushed)
        self.wakes = Wakes(sharded=False)
        self.watch: SimWatch | None = None

    def _pushed(self, push: Push | None) -> None:
        if push is None:
            self.wakes.subjects.clear()
        if self.watch is not None:
            self.watch.pushed_to(push)


class SimWatch:
    """One waiter's connection, woken by client tracking or (``tracking`` off) by Redisson's channel."""

    polls = False

    def __init__(self, runtime: SimulatedRuntime, network: Network, idle: list[SeatLine], *, tracking: bool) -> None:
        self._runtime = runtime
        self._tracking = tracking
        self._wakeup = Signal(runtime.process)
        self._ended = Signal(runtime.process)
        self._network = network
        network.watches[self] = runtime.process
        self._armed: bytes | None = None
        self._subscribed: str | None = None
        self._idle = idle
        self._line = idle.pop() if idle else SeatLine(runtime, network, tracking=tracking)
        self._line.watch = self
        self._wire, self._wakes = self._line.wire, self._line.wakes
        self.waiter = b""
        self.handed: int | None = None
        self.lost = True

    def pushed_to(self, push: Push | None) -> None:
        if push is None:
            self._subscribed = None
            self.lost = True
        elif (handed := pushes.handed((push[0].encode(), *push[1:]))) is not None:
            if handed.waiter != self.waiter:
                return
            if handed.token is not None:
                self.handed = handed.token
        elif push[0] != "message" and push[1] is not None and self._armed not in push[1]:
            return
        self._wakeup.set()

    async def take_seat(self, channel: str, waiter: str, timeout: float) -> str | None:
        if not self._tracking:
            return None
        until, subject = self._runtime.now() + timeout, f"{WAKE}:{self._wakes.id}"
        self.waiter, self.handed = waiter.encode(), None
        self._wakeup.clear()
        if not self._wire.is_open or subject.encode() not in self._wakes.subjects:
            await self._wire.call(["SUBSCRIBE", subject], until=until)
            self._wakes.subjects.add(subject.encode())
        self.lost = False
        return self._wakes.wire

    async def run(self, call: Call, timeout: float) -> Any:
        try:
            return await run(self._wire, call, self._runtime.now() + timeout)
        except BaseException:
            self.lost = True
            self._wire.drop()
            raise

    async def arm(self, key: str, channel: str, timeout: float) -> int:
        ttl: int = await self.arm_reading(["PTTL", key], channel, timeout)
        return ttl

    async def arm_reading(self, words: Sequence[Argument], channel: str, timeout: float) -> Any:
        until = self._runtime.now() + timeout
        self._wakeup.clear()
        self._armed = str(words[1]).encode()
        commands: list[Sequence[Argument]] = [words]
        if self._tracking:
            commands.insert(0, ["CLIENT", "CACHING", "YES"])
        elif self._subscribed != channel:
            commands.insert(0, ["SUBSCRIBE", channel])
        self.lost = self.lost or not self._wire.is_open  # the connection is opened again below, without a seat
        try:
            answer = await self._wire.call(*commands, until=until)
        except RequestFailed:
            self._subscribed = None
            self.lost = True
            raise
        except ReplyError as error:
            raise error_of_reply(str(error)) from error
        self._subscribed = channel
        return answer

    async def pushed(self, until: float) -> bool:
        self._ended.clear()
        await self._runtime.process.wait_any((self._wakeup, self._ended), until)
        return self._wakeup.is_set()

    def end_wait(self) -> None:
        self._ended.set()

    def close(self) -> None:
        self.lost = True
        self._network.watches.pop(self, None)
        if self._line.watch is self:
            self._line.watch = None
            if self._subscribed is None or self._tracking:
                self._idle.append(self._line)
            else:
                self._wire.drop()


class SimChannel:
    """A server as seen from one simulated process.

    ``multiplexed``: all requests share one connection, as on asyncio; otherwise each takes one from a pool, as with
    threads.
    """

    publish: Publish = "PUBLISH"

    def __init__(self, runtime: SimulatedRuntime, network: Network, *, multiplexed: bool, tracking: bool) -> None:
        self._runtime = runtime
        self._network = network
        self._tracking = tracking
        self._shared = Wire(runtime, network) if multiplexed else None
        self._idle: list[Wire] = []
        self._lines: list[SeatLine] = []
        greeting = ["CLIENT", "TRACKING", "ON", "OPTOUT", "NOLOOP"] if tracking else []
        self._untracked: Sequence[Sequence[Argument]] = [["CLIENT", "CACHING", "NO"]] if tracking else []
        self._guard = Wire(runtime, network, greeting, self._guard_pushed)
        self._forgetful = False
        self.suspicion = Signal(runtime.process)  #: set while there are suspects
        self._suspects: set[str] | None = set()  # None: every name

    async def run(self, call: Call, timeout: float) -> Any:
        until = self._runtime.now() + timeout
        if self._shared is not None:
            return await run(self._shared, call, until)
        wire = self._idle.pop() if self._idle else Wire(self._runtime, self._network)
        try:
            reply = await run(wire, call, until)
        except BaseException:
            wire.drop()  # also when cancelled: an unread answer is under way
            raise
        self._idle.append(wire)
        return reply

    async def start(self, keys: Opening, packed: bytes, timeout: float) -> Any:
        try:
            return await self.run(Packed(keys, packed), timeout)
        except EngineRefused as refusal:
            return refusal

    def post(self, call: Call) -> Flight | None:
        """Sends a script call immediately; None if that needs a connection first. ``settle`` must follow."""
        wire = self._shared or (self._idle.pop() if self._idle else None)
        return None if wire is None else wire.post(words_of(self._network, call))

    def settle(self, flight: Flight) -> None:
        """Call this when a posted call is answered or given up: no later request may get its answer."""
        if flight.wire is self._shared:
            return
        if flight.is_answered():
            self._idle.append(flight.wire)
        else:
            flight.wire.drop()

    async def command(self, args: Sequence[Argument], timeout: float) -> Any:
        wire = self._shared or Wire(self._runtime, self._network)
        try:
            return await wire.call(args, until=self._runtime.now() + timeout)
        except ReplyError as error:
            raise error_of_reply(str(error)) from error
        finally:
            if wire is not self._shared:
                wire.drop()

    def watch(self) -> SimWatch:
        return SimWatch(self._runtime, self._network, self._lines, tracking=self._tracking)

    async def run_acknowledged(self, call: Call, replicas: int, timeout: float) -> tuple[Any, int]:
        assert not replicas, "the model of Redis has no replicas"
        return await self.run(call, timeout), 0

    async def servers(self, timeout: float) -> Sequence[SimChannel]:
        return (self,)

    async def run_tracked(self, calls: Sequence[Call], replicas: int, timeout: float) -> Sequence[Answer]:
        answers: list[Answer] = []
        until = self._runtime.now() + timeout  # one timeout for all, which are sent together on a real channel
        for call in calls:
            try:
                answers.append(await self._run_tracked(call, until))
            except (RequestFailed, EngineRefused) as failure:
                answers.append(failure)
        return answers

    async def _run_tracked(self, call: Call, until: float) -> Any:
        try:
            if call.plain:
                reply = await self._look(call, until)
            else:
                reply = await run(self._guard, call, until, self._untracked)
                if self._tracking and call.watched:
                    await self._guard.call(["EXISTS", *call.watched], until=until)
        except RequestFailed:
            self._forgetful = True  # the keys of the lost connection are no longer tracked
            raise
        if self._forgetful:
            self._forgetful = False
            self._guard_pushed(None)
        return reply

    async def _look(self, call: Call, until: float) -> Any:
        try:
            return await self._guard.call(call.args, until=until)
        except ReplyError as error:
            raise error_of_reply(str(error)) from error

    async def run_together(self, calls: Sequence[Call], timeout: float) -> Sequence[Answer]:
        until = self._runtime.now() + timeout
        answers: list[Answer] = []
        for call in calls:
            left = until - self._runtime.now()
            answers += [out_of_time()] if left <= 0 else await self.run_tracked([call], 0, left)
        return answers

    def _guard_pushed(self, push: Push | None) -> None:
        if push is None or push[1] is None:
            self._suspects = None
        elif self._suspects is not None:
            self._suspects.update(key.decode() for key in push[1])
        self.suspicion.set()

    async def wait_for_hints(self, until: float, wakeup: Wakeup) -> Suspects:
        assert isinstance(wakeup, Signal)
        await self._runtime.process.wait_any((wakeup, self.suspicion), until)
        return self.suspects()

    def suspects(self) -> Suspects:
        """The names that were pushed since the last call."""
        suspects, self._suspects = self._suspects, set()
        self.suspicion.clear()
        return ALL_NAMES if suspects is None else sorted(suspects)

    async def close(self) -> None:
        for wire in (self._shared, self._guard, *self._idle, *(line.wire for line in self._lines)):
            if wire is not None:
                wire.drop()
        self._idle.clear()
