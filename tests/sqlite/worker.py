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
from holdfast.engines.base import (
    EXCLUSIVE,
    READ,
    WRITE,
    Claim,
    Found,
    Granted,
    Mode,
    RequestFailed,
    Session,
    SimpleAttempt,
    permits,
)
from holdfast.engines.registers import Cell, Guard, RegisterKey
from holdfast.engines.sqlite import contender
from holdfast.engines.sqlite.engine import connect
from holdfast.engines.sqlite.session import SqliteSession

#: Poll interval of a waiter that must be woken by a message.
NEVER = 120.0
#: Grants, however long they take on a busy machine.
_FEW = 6

_IDENTITY = uuid.uuid4().hex
_numbers = itertools.count(1)


def make_attempt(name: str, ttl: float = 30.0, **more: Any) -> SimpleAttempt:
    """An attempt at a new claim, as the core would make one."""
    return SimpleAttempt(Claim(name, f"{_IDENTITY}:{next(_numbers)}", ttl, **more))


async def obtain(session: Session[Any], attempt: SimpleAttempt, until: float) -> Granted | None:
    """The acquisition loop of the core in its simplest form."""
    contender = None
    while True:
        answer = await session.acquire(attempt, 5.0)
        if isinstance(answer, Granted):
            if contender is not None:
                contender.abandon()  # the grant has removed its place in the queue
            return answer
        if clock.now() >= until:
            if contender is not None:
                await contender.leave()
            return None
        contender = contender or session.contender(attempt, 5.0)
        await contender.wait(until)


def count(session: SqliteSession, name: str, file: Path, times: int, directly: bool) -> None:
    """Adds to a number in a file with a gap between read and write; correct only under mutual exclusion."""
    for _ in range(times):
        attempt = make_attempt(name)
        if not (directly and take_directly(session, attempt)):
            assert run(obtain(session, attempt, clock.now() + 30.0)) is not None
        value = int(file.read_text())
        os.sched_yield()
        file.write_text(str(value + 1))
        assert (directly and give_back_directly(session, attempt)) or run(session.release(attempt, 5.0)) is Found.OURS


def take_directly(session: SqliteSession, attempt: SimpleAttempt) -> bool:
    """As the core takes a lock that is free."""
    claim = attempt.claim
    return isinstance(session.acquire_directly(claim.name, claim.owner, claim.description, claim.ttl, 5.0), int)


def give_back_directly(session: SqliteSession, attempt: SimpleAttempt) -> bool:
    return session.release_directly(attempt.claim.name, attempt.owner, 5.0) is Found.OURS


def hammer(session: Session[Any], name: str, seconds: float) -> dict[str, Any]:
    """Acquires and releases repeatedly; returns the number of grants and the errors a caller would have seen."""
    grants, errors = 0, []
    until = clock.now() + seconds
    while clock.now() < until:
        attempt = make_attempt(name, 1.0)
        try:
            if run(obtain(session, attempt, clock.now() + 10.0)) is not None:
                grants += 1
                run(session.release(attempt, 5.0))
        except RequestFailed:
            pass  # the core retries
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    return {"grants": grants, "errors": errors}


def add_to_register(session: Session[Any], name: str, times: int) -> None:
    """Adds to a number in a durable register, as a monitor would."""
    registers, key = session.registers, RegisterKey(name, "monitor", durable=True)
    assert registers is not None
    for _ in range(times):
        attempt = make_attempt(name)
        granted = run(obtain(session, attempt, clock.now() + 30.0))
        assert granted is not None
        guard = Guard(granted.token, attempt.owner)
        cell = run(registers.load(key, guard, 5.0))
        assert isinstance(cell, Cell)
        stored = run(registers.store(key, guard, cell.version, 5.0, value=b"%d" % (int(cell.value or b"0") + 1)))
        assert stored == cell.version + 1
        run(session.release(attempt, 5.0))


def join_register(session: Session[Any], name: str, waiter: str) -> None:
    """Become present as a waiter, with a listener."""
    registers, key = session.registers, RegisterKey(name, "condition:")
    assert registers is not None
    run(registers.listener(key, waiter).arm())
    run(registers.look(key, waiter, 5.0))


def read_and_write(session: Session[Any], name: str, seconds: float) -> dict[str, Any]:
    """Reads and writes in turn, for as long and a few times at least; returns the number of grants, and what a reader
    saw beside a writer or a writer beside any other."""
    grants, errors = 0, []
    until = clock.now() + seconds
    while clock.now() < until or grants < _FEW:
        mode = READ if grants % 2 else WRITE
        attempt = make_attempt(name, mode=mode)
        assert run(obtain(session, attempt, clock.now() + 30.0)) is not None
        grants += 1
        modes = [holder.mode for holder in run(session.inspect(name, 5.0)).holders]
        if "write" in modes and len(modes) > 1:
            errors.append(str(modes))
        run(session.release(attempt, 5.0))
    return {"grants": grants, "errors": errors}


def take_permits(session: Session[Any], name: str, seconds: float) -> dict[str, Any]:
    """Takes one or two of three permits, for as long and a few times at least."""
    grants, errors = 0, []
    until = clock.now() + seconds
    while clock.now() < until or grants < _FEW:
        attempt = make_attempt(name, mode=permits(1 + grants % 2, 3))
        assert run(obtain(session, attempt, clock.now() + 30.0)) is not None
        grants += 1
        held = sum(holder.count or 0 for holder in run(session.inspect(name, 5.0)).holders)
        if held > 3:
            errors.append(str(held))
        run(session.release(attempt, 5.0))
    return {"grants": grants, "errors": errors}


def _mode(order: dict[str, Any]) -> Mode:
    modes = {"read": READ, "write": WRITE, "permits": permits(order.get("permits", 1), 2)}
    return modes.get(order.get("mode", ""), EXCLUSIVE)


def _renewed(session: Session[Any], attempt: SimpleAttempt, ttl: float) -> str:
    try:
        return str(run(session.renew(attempt, ttl, 5.0)).name)
    except RequestFailed as failure:
        return str(failure)


def main() -> None:
    session = connect(sys.argv[1], {}).session(BLOCKING)
    attempts: dict[str, SimpleAttempt] = {}
    for line in sys.stdin:
        order = json.loads(line)
        name = order.get("name", "")
        answer: dict[str, Any] = {}
        match order["do"]:
            case "acquire":
                attempt = attempts[name] = make_attempt(
                    name, order.get("ttl", 30.0), fair=order.get("fair", False), mode=_mode(order)
                )
                got = run(obtain(session, attempt, clock.now() + order.get("timeout", 0.0)))
                answer = {"token": got.token if got is not None else None}
            case "release":
                answer = {"found": run(session.release(attempts[name], 5.0)).name}
            case "renew":
                answer = {"found": _renewed(session, attempts[name], order.get("ttl", 30.0))}
            case "hammer":
                answer = hammer(session, name, order["seconds"])
            case "read and write":
                answer = read_and_write(session, name, order["seconds"])
            case "take permits":
                answer = take_permits(session, name, order["seconds"])
            case "count":
                count(session, name, Path(order["file"]), order["times"], order.get("directly", False))
            case "acquire directly":
                attempt = attempts[name] = make_attempt(name, order.get("ttl", 30.0))
                answer = {"granted": take_directly(session, attempt)}
            case "release directly":
                answer = {"released": give_back_directly(session, attempts[name])}
            case "detach":
                attempt = make_attempt(name, detached=True)
                run(session.transfer(attempt, attempts[name].owner, 5.0))
                answer = {"owner": attempt.owner}
            case "attach":
                given = run(session.transfer(make_attempt(name), order["owner"], 5.0))
                answer = {"token": given.token if isinstance(given, Granted) else None}
            case "add to register":
                add_to_register(session, name, order["times"])
            case "join register":
                join_register(session, name, order["waiter"])
            case "do not poll":
                contender._FIRST_POLL = contender._POLL = NEVER  # type: ignore[misc]
            case "ping":
                pass
        answer["at"] = time.monotonic()
        print(json.dumps(answer), flush=True)
    run(session.close())


if __name__ == "__main__":
    main()
