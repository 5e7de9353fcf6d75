"""A client of the ladder: one process, one update under a lock. It reports every step and stops at named lines.

Messages are lines of JSON on a socket: ``step`` and what belongs to it, with the time (CLOCK_MONOTONIC, which all
processes of a host share). Before its update, and at each line where it should stop, it waits for a line on the socket.
"""

from __future__ import annotations

import importlib
import json
import logging
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from holdfast.cli.ladder.lines import NamedLine, watch
from holdfast.cli.ladder.register import Register
from holdfast.errors import EngineUnavailable, LockLost, OutcomeUnknown, StaleToken


@dataclass(frozen=True)
class Task:
    """The task of one worker."""

    rung: str  #: a module of the rungs
    addresses: list[str]
    name: str
    lease: float
    register: str
    stops: list[str]  #: named lines, and ``read``: between the read and the write

    def encode(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def decode(cls, facts: dict[str, Any]) -> Self:
        return cls(**facts)


class Reporter:
    def __init__(self, connection: socket.socket, stops: list[str]) -> None:
        self._stream = connection.makefile("rw", encoding="utf-8")
        self._stops = set(stops)
        self._passed: set[str] = set()

    def report(self, step: str, **facts: Any) -> None:
        self._stream.write(json.dumps({"step": step, "time": time.monotonic(), **facts}) + "\n")
        self._stream.flush()

    def wait(self) -> None:
        if not self._stream.readline():
            raise SystemExit  # the ladder has ended

    def line(self, line: NamedLine) -> None:
        """Report a line when it is reached for the first time, and stop there if the task says so."""
        if line.name not in self._passed:
            self._passed.add(line.name)
            self.point(line.name, line=line.number, code=line.code)

    def point(self, name: str, **facts: Any) -> None:
        stopped = name in self._stops
        self.report(name, stopped=stopped, **facts)
        if stopped:
            self.wait()


def run(task: Task, connection: socket.socket) -> None:
    logging.disable()  # kazoo logs connection failures, which are part of the experiment
    module = importlib.import_module(f"holdfast.cli.ladder.rungs.{task.rung}")
    lock = module.Lock(task.addresses, task.name, task.lease)
    reporter = Reporter(connection, task.stops)
    register = Register(Path(task.register), lock)
    reporter.report("ready")
    reporter.wait()
    assert module.__file__ is not None
    watch(module.__file__, reporter.line)
    _update(lock, register, reporter)


def _update(lock: Any, register: Register, reporter: Reporter) -> None:
    try:
        lock.acquire()
    except (EngineUnavailable, OutcomeUnknown) as error:  # no answer in time, although no fault is aimed at the server
        reporter.report("unavailable", error=str(error))
        return
    reporter.report("acquired")
    try:
        value = register.read()
        reporter.point("read", value=value)
        register.write(value + 1)
        reporter.report("wrote", value=value + 1)
    except StaleToken as refused:
        reporter.report("refused", token=refused.token, seen=refused.seen)
    try:
        lock.release()
        reporter.report("released")
    except LockLost as lost:
        reporter.report("lost", reason=lost.reason)
