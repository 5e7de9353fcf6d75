"""The watchdog's batches in a cluster (renewals, withdrawals): all servers in parallel, none waits for another."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Final, Generic

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.node import K, KeeperNodes
from holdfast.engines.redis.cluster.slots import HOPS, Place, astray, slot_of, unserved
from holdfast.engines.redis.connections.group import KeeperGroup
from holdfast.engines.redis.dialect.replication import unacknowledged
from holdfast.engines.redis.dialect.replies import Answer, Redirected, TryAgain, out_of_time
from holdfast.engines.redis.dialect.requests import Call
from holdfast.errors import EngineRefused

#: Calls in one buffer to one server: more would block its other clients for too long.
_MOST_CALLS: Final = 200


class Batch(Generic[K]):
    """One set of calls, each for the server that has its slot. A server that fails fails its own calls and no others.
    ``timeout`` bounds each round trip, ``deadline`` (on time.monotonic()) all of them together."""

    def __init__(
        self,
        nodes: KeeperNodes[K],
        group: KeeperGroup[K],
        calls: Sequence[Call],
        replicas: int,
        timeout: float,
        deadline: float = math.inf,
    ) -> None:
        self._nodes = nodes
        self._group = group
        self._calls = calls
        self._replicas = replicas
        self._timeout = timeout
        self._deadline = deadline
        self._answers: list[Answer] = [None] * len(calls)

    async def run(self) -> Sequence[Answer]:
        """An answer for each call."""
        left: Sequence[int] = range(len(self._calls))
        for _ in range(HOPS):
            left = await self._ask(self._by_place(left))
            if not left:
                return self._answers
        for at in left:
            self._answers[at] = astray(slot_of(self._calls[at].keys[0]))
        return self._answers

    def _by_place(self, numbers: Iterable[int]) -> dict[Place, list[int]]:
        """Which calls go to which server; those without a server are answered already."""
        grouped: dict[Place, list[int]] = {}
        for at in numbers:
            key = self._calls[at].keys[0]
            place = self._nodes.known_owner(key)
            if place is None:
                self._answers[at] = unserved(slot_of(key))
            elif failure := self._nodes.expected_failure(place, self._replicas):
                self._answers[at] = failure
            else:
                grouped.setdefault(place, []).append(at)
        return grouped

    async def _ask(self, waiting: dict[Place, list[int]]) -> list[int]:
        """Ask all servers. Returns the calls whose slot has moved, after its new server was noted."""
        moved, half_moved = list[int](), list[tuple[int, Place]]()
        while waiting:
            now = {place: numbers[:_MOST_CALLS] for place, numbers in waiting.items()}
            requests = [
                (self._nodes.node(place), [self._calls[at] for at in numbers]) for place, numbers in now.items()
            ]
            began = time.monotonic()
            left = self._left()
            if left <= 0:
                for at in (each for numbers in waiting.values() for each in numbers):
                    self._answers[at] = out_of_time()
                break
            replies = await self._group.ask_each(requests, self._replicas, left)
            for (place, numbers), given in zip(now.items(), replies, strict=True):
                for at, answer in zip(numbers, given, strict=True):
                    self._answers[at] = answer
                    if isinstance(answer, Redirected):
                        there, asking = self._nodes.redirect(answer, place)
                        half_moved.append((at, there)) if asking else moved.append(at)
                rest = waiting.pop(place)[_MOST_CALLS:]
                if failure := _of_server(given):
                    self._nodes.note_failure(place, failure, self._replicas, late=self._is_late(began))
                    for at in rest:  # they would fail the same way, after another timeout
                        self._answers[at] = failure
                elif rest:
                    waiting[place] = rest
        for at, place in half_moved:
            self._answers[at] = await self._announce(self._calls[at], place)
            if self._calls[at].watched:
                self._nodes.untracked(self._calls[at].watched)
        return moved

    async def _announce(self, call: Call, place: Place) -> Answer:
        """Run a call whose key was moved before the rest of its slot."""
        if failure := self._nodes.expected_failure(place, self._replicas):
            return failure
        began = time.monotonic()
        try:
            reply, acknowledged = await self._nodes.node(place).run_acknowledged(
                call, self._replicas, max(self._left(), 0.001), asking=True
            )
        except RequestFailed as error:
            self._nodes.note_failure(place, error, self._replicas, late=self._is_late(began))
            return error
        except EngineRefused as refusal:  # redirected once more: the next renewal finds it
            return refusal
        return reply if acknowledged >= self._replicas else unacknowledged(acknowledged, self._replicas)

    def _left(self) -> float:
        return min(self._timeout, self._deadline - time.monotonic())

    def _is_late(self, began: float) -> bool:
        return time.monotonic() - began >= self._timeout / 2


def _of_server(answers: Sequence[Answer]) -> RequestFailed | None:
    """The failure, if it is the server's and not that of a slot which is half moved, or has no server."""
    failures = [each for each in answers if isinstance(each, RequestFailed) and not isinstance(each, TryAgain)]
    return failures[0] if len(failures) == len(answers) else None
