"""Requests to several simulated servers in parallel."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from holdfast._runtime.base import Wakeup
from holdfast.engines.base import ALL_NAMES, RequestFailed, Suspects
from holdfast.engines.redis.dialect.replies import Answer
from holdfast.engines.redis.dialect.replies import error as error_of_reply
from holdfast.engines.redis.dialect.requests import Call
from holdfast.errors import EngineRefused
from tests.simulation.client.channel import SimChannel
from tests.simulation.client.wire import Flight, is_unknown_script
from tests.simulation.redis_model.keyspace import ReplyError
from tests.simulation.world.runtime import Process, Signal

T = TypeVar("T")


class SimServerGroup:
    """See :class:`holdfast.engines.redis.connections.group.KeeperGroup`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, channels: Sequence[SimChannel], call: Call, timeout: float) -> list[Answer]:
        until = self._process.now() + timeout
        flights = {channel: flight for channel in channels if (flight := channel.post(call)) is not None}
        answers: dict[SimChannel, Answer] = {}

        async def run(channel: SimChannel) -> None:
            answers[channel] = await _run(channel, call, timeout)

        # Sent immediately where there is a connection; only the others need a task each.
        tasks = [self._process.spawn(run(channel), call.script.name) for channel in channels if channel not in flights]
        try:
            for channel, flight in flights.items():
                answers[channel] = await _answer(channel, flight, call, timeout, until)
            for task in tasks:
                await task.done.wait()
        finally:
            for channel, flight in flights.items():
                channel.settle(flight)
            for task in tasks:
                task.cancel()  # without effect, unless the caller was cancelled
        return [answers[channel] for channel in channels]

    async def ask_each(
        self, requests: Sequence[tuple[SimChannel, Sequence[Call]]], replicas: int, timeout: float
    ) -> list[Sequence[Answer]]:
        return await self._together(
            [partial(channel.run_tracked, calls, replicas, timeout) for channel, calls in requests], "tracked"
        )

    async def wait_for_hints(self, channels: Sequence[SimChannel], until: float, wakeup: Wakeup) -> Suspects:
        assert isinstance(wakeup, Signal)
        await self._process.wait_any((wakeup, *(channel.suspicion for channel in channels)), until)
        found = [channel.suspects() for channel in channels]
        return ALL_NAMES if ALL_NAMES in found else sorted({name for names in found for name in names})

    async def _together(self, questions: Sequence[Callable[[], Coroutine[Any, Any, T]]], what: str) -> list[T]:
        answers: dict[int, T] = {}

        async def note(place: int) -> None:
            answers[place] = await questions[place]()

        tasks = [self._process.spawn(note(place), what) for place in range(len(questions))]
        try:
            for task in tasks:
                await task.done.wait()
        finally:
            for task in tasks:
                task.cancel()
        return [answers[place] for place in range(len(questions))]


async def _answer(channel: SimChannel, flight: Flight, call: Call, timeout: float, until: float) -> Answer:
    try:
        return await flight.reply(until)
    except RequestFailed as failure:
        return failure
    except ReplyError as error:
        return await _run(channel, call, timeout) if is_unknown_script(error) else error_of_reply(str(error))


async def _run(channel: SimChannel, call: Call, timeout: float) -> Answer:
    try:
        return await channel.run(call, timeout)
    except (RequestFailed, EngineRefused) as failure:
        return failure
