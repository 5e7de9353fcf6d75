"""A model of the condition recipe, explored exhaustively: the shipped decisions, with a fault at every step.

One lock, one register, items that producers put and notify of, and consumers that wait for them. Each consumer may time
out, be cancelled, raise, or die, at each of its steps; at most ``FAULTS`` times. In every state in which nothing can
happen any more by itself, an item that is left has no consumer asleep beside it.

Each mutant is one plausible simplification. The model must find the schedule that breaks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from holdfast.engines import waiter_queue
from holdfast.engines.waiter_queue import NOTIFIED, WAITING
from holdfast.primitives import condition_queue

CONSUMERS: Final = ("c1", "c2")
FAULTS: Final = 2
CONDITION: Final = "full"

# What a process is about to do. A consumer: enter, look for the item (with the lock), sleep, come back for the lock,
# load (with the lock), take the item, leave. A producer: enter, put and notify, leave.
START, CHECK, ASLEEP, BACK, LOAD, TAKE, LEAVE, DONE, DEAD = range(9)
LATE_ENTRY, RAISE = 9, 10


class World(NamedTuple):
    """A state of the whole system."""

    steps: tuple[int, ...]  # of the consumers, then of the producers
    timed_out: tuple[bool, ...]
    holder: int | None  # number has the lock
    queue: str  # as it is stored
    view: str  # as the holder has it
    item: int  # how many there are
    faults: int

    def put(self, number: int, step: int) -> World:
        return self._replace(steps=(*self.steps[:number], step, *self.steps[number + 1 :]))


class Model:
    """All steps that are possible in a world. ``mutant``: the rule that is left out."""

    def __init__(self, mutant: str = "", producers: int = 1) -> None:
        self._mutant = mutant
        self._producers = producers

    def start(self) -> World:
        count = len(CONSUMERS)
        return World((START,) * (count + self._producers), (False,) * count, None, "", "", 0, FAULTS)

    def next(self, world: World) -> Iterator[World]:
        """Steps that happen by themselves."""
        for number in range(len(world.steps)):
            yield from self._consumer(world, number) if number < len(CONSUMERS) else self._producer(world, number)

    def present(self, world: World) -> frozenset[str]:
        """Those that look at the register: asleep, or on their way back."""
        return frozenset(name for number, name in enumerate(CONSUMERS) if world.steps[number] in (ASLEEP, BACK))

    def _load(self, world: World, mine: str) -> str:
        change = condition_queue.pass_on(waiter_queue.parse(world.queue), self.present(world), {mine})
        return waiter_queue.to_text(change.queue)

    def _take_lock(self, world: World, number: int, step: int) -> Iterator[World]:
        if world.holder is None:
            yield world._replace(holder=number).put(number, step)

    def _leave(self, world: World, number: int, step: int, *, failed: bool = False) -> World:
        """The store that ends the critical section, then the release."""
        queue = waiter_queue.parse(world.view)
        mine = {CONSUMERS[number]} if number < len(CONSUMERS) else set()
        change = (condition_queue.give_up if failed else condition_queue.settle)(queue, mine)
        return world._replace(queue=waiter_queue.to_text(change.queue), view="", holder=None).put(number, step)

    def _consumer(self, world: World, number: int) -> Iterator[World]:
        step, me = world.steps[number], CONSUMERS[number]
        if step == START:
            yield from self._take_lock(world, number, CHECK)
        elif step == CHECK:  # it has the lock, and no entry
            view = self._load(world, me)
            if world.item:
                yield world._replace(view=view).put(number, TAKE)
            elif self._mutant == "late entry":  # it releases first
                yield world._replace(queue=view, view="", holder=None).put(number, LATE_ENTRY)
            else:
                joined = condition_queue.join(waiter_queue.parse(view), CONDITION, me)
                yield world._replace(queue=waiter_queue.to_text(joined.queue), view="", holder=None).put(number, ASLEEP)
        elif step == LATE_ENTRY:
            joined = condition_queue.join(waiter_queue.parse(world.queue), CONDITION, me)
            yield world._replace(queue=waiter_queue.to_text(joined.queue)).put(number, ASLEEP)
        elif step == ASLEEP:
            look = waiter_queue.look(world.queue, me, self.present(world))
            passes_on = self._mutant != "none passes on" and condition_queue.must_pass_on(look, look.rank + 1)
            if condition_queue.mark_of(waiter_queue.parse(world.queue), me) != WAITING or passes_on:
                yield world.put(number, BACK)
        elif step == BACK:
            yield from self._take_lock(world, number, LOAD)
        elif step == LOAD:
            yield self._loaded(world, number)
        elif step == TAKE:
            yield world._replace(item=world.item - 1).put(number, LEAVE) if world.item else world.put(number, LEAVE)
        elif step == LEAVE:
            yield self._leave(world, number, DONE)
        elif step == RAISE:
            yield self._leave(world, number, DONE, failed=self._mutant != "exception")

    def _loaded(self, world: World, number: int) -> World:
        """With the lock again: was it notified?"""
        me, view = CONSUMERS[number], self._load(world, CONSUMERS[number])
        queue = waiter_queue.parse(view)
        timed_out = world.timed_out[number]
        if condition_queue.mark_of(queue, me) != WAITING and not (self._mutant == "blind time-out" and timed_out):
            if self._mutant == "consumed at grant":
                view = waiter_queue.to_text(condition_queue.settle(queue, {me}).queue)
                world = world._replace(queue=view)
            if world.item or timed_out:
                return world._replace(view=view).put(number, TAKE if world.item else LEAVE)
            rest = condition_queue.settle(queue, {me}).queue  # woken for nothing: it waits again
            joined = condition_queue.join(rest, CONDITION, me)
            return world._replace(queue=waiter_queue.to_text(joined.queue), view="", holder=None).put(number, ASLEEP)
        if timed_out:
            return self._leave(world._replace(view=view), number, DONE)
        return world._replace(queue=view, view="", holder=None).put(number, ASLEEP)

    def _producer(self, world: World, number: int) -> Iterator[World]:
        step = world.steps[number]
        if step == START:
            yield from self._take_lock(world, number, CHECK)
        elif step == CHECK:
            change = condition_queue.notify(waiter_queue.parse(self._load(world, "")), CONDITION, 1)
            yield world._replace(item=world.item + 1, view=waiter_queue.to_text(change.queue)).put(number, LEAVE)
        elif step == LEAVE:
            yield self._leave(world, number, DONE)

    def faults(self, world: World) -> Iterator[World]:
        """What may go wrong: each costs one of the faults that are left."""
        if not world.faults:
            return
        hit = world._replace(faults=world.faults - 1)
        for number, me in enumerate(CONSUMERS):
            step = world.steps[number]
            if step in (START, DONE, DEAD):
                continue
            # Killed, or its lease has expired; cancelled, while it has no lock, looks the same.
            released = hit._replace(holder=None, view="") if world.holder == number else hit
            yield released.put(number, DEAD)
            if step in (ASLEEP, BACK) and self._mutant == "blind cancel":
                left = condition_queue.settle(waiter_queue.parse(world.queue), {me})
                yield hit._replace(queue=waiter_queue.to_text(left.queue)).put(number, DEAD)
            if step == ASLEEP:
                timed_out = tuple(True if each == number else old for each, old in enumerate(world.timed_out))
                yield hit._replace(timed_out=timed_out).put(number, BACK)
            if step == TAKE:
                yield hit.put(number, RAISE)


def stuck(model: Model) -> World | None:
    """A state in which nothing happens any more, an item is left, and a consumer sleeps. None: there is none."""
    seen, todo = {model.start()}, [model.start()]
    while todo:
        world = todo.pop()
        following = list(model.next(world))
        if not following and world.item and ASLEEP in world.steps:
            return world
        for each in (*following, *model.faults(world)):
            if each not in seen:
                seen.add(each)
                todo.append(each)
    assert len(seen) > 500
    return None


@pytest.mark.parametrize("producers", [1, 2])
def test_no_item_is_left_beside_a_consumer_that_sleeps(producers: int) -> None:
    assert stuck(Model(producers=producers)) is None


@pytest.mark.parametrize(
    "mutant", ["late entry", "consumed at grant", "blind time-out", "blind cancel", "none passes on", "exception"]
)
def test_the_model_catches(mutant: str) -> None:
    assert stuck(Model(mutant)) is not None


def test_marks_are_those_of_the_queue() -> None:
    queue = waiter_queue.parse("full=a:W,b:W")
    notified = condition_queue.notify(queue, "full", 1)
    assert (waiter_queue.to_text(notified.queue), notified.wake) == ("full=a:N,b:W", ("a",))
    assert condition_queue.mark_of(notified.queue, "a") == NOTIFIED
    assert condition_queue.notify(queue, "full", None).wake == ("a", "b")
    assert condition_queue.notify(queue, "full", 2, {"a"}).wake == ("b",)
    assert condition_queue.notify(queue, "empty", 1) == (queue, ())
    gone = condition_queue.pass_on(notified.queue, {"b"}, ())
    assert (waiter_queue.to_text(gone.queue), gone.wake) == ("full=b:N", ("b",))
    assert condition_queue.pass_on(notified.queue, set(), {"a"}).wake == ()
