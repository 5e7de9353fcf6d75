"""A process that uses a latch or a barrier and prints its steps: ``python -m tests.primitives.rounds_worker URL KIND
NUMBER ROUNDS``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import holdfast
from holdfast._runtime import clock

WITHIN = 40


def step(call: str, function: Callable[[], Any]) -> Any:
    began = clock.now()
    try:
        result = function()
    except holdfast.LockError as error:
        print(error, file=sys.stderr)
        result = "unknown"
    print(json.dumps([call, result, began, clock.now()]), flush=True)
    return result


def main(url: str, kind: str, number: int, rounds: int) -> None:
    with holdfast.connect(url, ttl=3) as locks:
        latch = locks.latch("latch", number) if kind in ("wait", "count") else None
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(rounds):
            if latch is None:
                barrier = locks.barrier("barrier", number)
                step("enter", lambda barrier=barrier: barrier.enter(WITHIN))  # type: ignore[misc]
                if kind == "inside":
                    sys.stdin.readline()
                step("leave", lambda barrier=barrier: barrier.leave(WITHIN))  # type: ignore[misc]
            elif kind == "wait":
                step("wait", lambda: latch.wait(WITHIN))
            else:
                step("count_down", latch.count_down)
                if step("count", latch.count) == 0:
                    step("reset", latch.reset)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
