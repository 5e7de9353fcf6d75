"""What several processes did with a latch or a barrier, on one clock, and whether it could have been. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


class Step(NamedTuple):
    """One call: from before it was made until after it returned. ``result`` is "unknown" if it raised."""

    call: str
    result: Any
    began: float
    ended: float


State = Any
#: The states that may follow from a state by a step; none if the step cannot have happened then.
Model = Callable[[State, Step], Iterable[State]]


def explains(histories: Sequence[Sequence[Step]], initial: State, model: Model) -> bool:
    """Whether the steps of these callers, each of which made one call after the other, can be put into one order that
    keeps to real time and that the model allows. A step with an unknown result may have happened later, or never."""
    todo, seen = [((0,) * len(histories), initial)], set()
    while todo:
        place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        done, state = place
        following = [history[index] for history, index in zip(histories, done, strict=True) if index < len(history)]
        if not following:
            return True
        limit = min(float("inf") if step.result == "unknown" else step.ended for step in following)
        for caller, (history, index) in enumerate(zip(histories, done, strict=True)):
            if index == len(history) or history[index].began > limit:
                continue
            after = (*done[:caller], index + 1, *done[caller + 1 :])
            states = list(model(state, history[index]))
            if history[index].result == "unknown":
                states.append(state)
            todo += [(after, each) for each in states]
    return False


def latch(size: int) -> Model:
    """A latch of ``size``, whose state is its count. A wait that is through has seen it open at one moment at least."""

    def model(left: int, step: Step) -> Iterable[int]:
        if step.call == "count_down":
            return [max(0, left - 1)]
        if step.call == "reset":
            return [size]
        if step.call == "count":
            return [left] if step.result == left else []
        return [left] if (left == 0) == step.result else []

    return model


def barrier_problems(histories: Sequence[Sequence[Step]], parties: int) -> list[str]:
    """What is wrong with rounds of ``parties`` members that all live: each history is enter, leave, enter, leave, …"""
    found = []
    for number, steps in enumerate(zip(*histories, strict=False)):
        call, round_ = steps[0].call, number // 2
        if {step.call for step in steps} != {call}:
            found.append(f"round {round_}: members are in different steps")
        if [step.result for step in steps] != [True] * len(steps):
            found.append(f"round {round_}: {call} did not return True")
        if len(steps) < parties:
            found.append(f"round {round_}: {len(steps)} of {parties} members")
        last = max(step.began for step in steps)
        found += [
            f"round {round_}: a member was through {call} before another one had called it"
            for step in steps
            if step.ended < last
        ]
    return found
