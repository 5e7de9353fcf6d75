"""A process that executes commands from its standard input, one JSON line each; tests kill and freeze it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from holdfast._runtime import clock
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Claim, Found, Granted, RequestFailed, Session
from holdfast.engines.sqlite import connect, contender

#: Poll interval of a waiter that must be woken by a message.
NEVER = 120.0

_IDENTITY = uuid.uuid4().hex
_numbers = itertools.count(1)


def make_claim(name: str, ttl: float = 30.0, **more: Any) -> Claim:
    """Makes a claim the way the core does."""
    return Claim(name, f"{_IDENTITY}:{next(_numbers)}", ttl, **more)


async def obtain(session: Session, claim: Claim, until: float) -> Granted | None:
    """The acquisition loop of the core in its simplest form."""
    contender = None
    while True:
        answer = await session.acquire(claim, 5.0)
        if isinstance(answer, Granted):
            if contender is not None:
                contender.abandon()  # the grant has removed its place in the queue
            return answer
        if clock.now() >= until:
            if contender is not None:
                await contender.leave()
            return None
        contender = contender or session.contender(claim, 5.0)
        await contender.wait(until)


def count(session: Session, name: str, file: Path, times: int) -> None:
    """Adds to a number in a file with a gap between read and write; correct only under mutual exclusion."""
    for _ in range(times):
        claim = make_claim(name)
        assert run(obtain(session, claim, clock.now() + 30.0)) is not None
        value = int(file.read_text())
        os.sched_yield()
        file.write_text(str(value + 1))
        run(session.release(claim, 5.0))


def hammer(session: Session, name: str, seconds: float) -> dict[str, Any]:
    """Acquires and releases repeatedly; returns the number of grants and the errors a caller would have seen."""
    grants, errors = 0, []
    until = clock.now() + seconds
    while clock.now() < until:
        claim = make_claim(name, 1.0)
        try:
            if run(obtain(session, claim, clock.now() + 10.0)) is not None:
                grants += 1
                run(session.release(claim, 5.0))
        except RequestFailed:
            pass  # the core retries
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    return {"grants": grants, "errors": errors}


def main() -> None:
    session = connect(sys.argv[1], {}).session(BLOCKING)
    claims: dict[str, Claim] = {}
    for line in sys.stdin:
        order = json.loads(line)
        name = order.get("name", "")
        answer: dict[str, Any] = {}
        match order["do"]:
            case "acquire":
                claim = claims[name] = make_claim(name, order.get("ttl", 30.0), fair=order.get("fair", False))
                got = run(obtain(session, claim, clock.now() + order.get("timeout", 0.0)))
                answer = {"token": got.token if got is not None else None}
            case "release":
                answer = {"found": run(session.release(claims[name], 5.0)).name}
            case "renew":
                (found,) = run(session.renew([claims[name]], order.get("ttl", 30.0), 5.0))
                answer = {"found": found.name if isinstance(found, Found) else str(found)}
            case "hammer":
                answer = hammer(session, name, order["seconds"])
            case "count":
                count(session, name, Path(order["file"]), order["times"])
            case "do not poll":
                contender._FIRST_POLL = contender._POLL = NEVER  # type: ignore[misc]
            case "ping":
                pass
        answer["at"] = time.monotonic()
        print(json.dumps(answer), flush=True)
    run(session.close())


if __name__ == "__main__":
    main()
