"""The command line of ``holdfast run``, read into an Order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.cli import exit_codes
from holdfast.cli.run import schedule
from holdfast.errors import UsageError

_SHELL: Final = "/bin/sh"


class Order(NamedTuple):
    """What to run, under which lock. Durations are seconds; None: not given."""

    name: str
    argv: tuple[str, ...]
    shell: str | None  #: the STRING of -c, which is in argv too
    url: str | None
    profile: str | None
    timeout: float | None
    ttl: float | None
    fair: bool
    shared: bool
    exclusive: bool
    semaphore: int | None
    max_hold: float | None
    at_least: float
    grace: float | None
    report: int | None
    conflict_exit_code: int


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.allow_abbrev = False
    parser.usage = "holdfast run [OPTION…] NAME [--] CMD [ARG…]\n       holdfast run [OPTION…] NAME -c STRING"
    add = parser.add_argument
    add("--url", help="the lock engine; default: the configured one")
    add("--profile", help="a profile of the settings file")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument("--timeout", metavar="T", help="wait at most so long for the lock (30, 500ms, 5m; 0: one try)")
    waiting.add_argument("-n", "--nonblock", action="store_true", help="one try; the same as --timeout 0")
    add("--ttl", metavar="T", help="how long the lock outlives a runner that vanished; at least 3s; default 30s")
    add("--fair", action="store_true", help="strictly first come, first served")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--shared", action="store_true", help="the read lock of NAME, beside other runs with --shared")
    kind.add_argument("--exclusive", action="store_true", help="the write lock of NAME, which keeps --shared out")
    kind.add_argument("--semaphore", metavar="N", help="one of N permits of NAME: at most N runs at a time")
    add("--max-hold", metavar="T", help="stop CMD when the lock has been held for so long")
    add("--at-least", metavar="T", default="0", help="keep the lock for so long, also if CMD ends earlier")
    add("--grace", metavar="T", help="time from SIGTERM to SIGKILL; at most a third of the ttl; default 5s")
    add("--report", metavar="FD", help="write one JSON line about the outcome to this descriptor")
    add("-E", "--conflict-exit-code", metavar="N", default=str(exit_codes.BUSY), help="exit code if busy; default 75")
    add("-c", dest="shell", metavar="STRING", help=f"run STRING by {_SHELL} -c")
    # One argument for NAME and CMD: versions of argparse differ in how they treat a "--" between two positional
    # arguments, and CMD's options must not be parsed as ours.
    add("words", nargs=argparse.REMAINDER, metavar="NAME [--] CMD", help=argparse.SUPPRESS)


def read(arguments: argparse.Namespace) -> Order:
    """The order; UsageError with the remedy if the arguments are wrong."""
    name, argv, shell = _split(arguments.words, arguments.shell)
    order = Order(
        name=name,
        argv=argv,
        shell=shell,
        url=arguments.url,
        profile=arguments.profile,
        timeout=0.0 if arguments.nonblock else _seconds(arguments.timeout, "--timeout"),
        ttl=_seconds(arguments.ttl, "--ttl"),
        fair=arguments.fair,
        shared=arguments.shared,
        exclusive=arguments.exclusive,
        semaphore=None if arguments.semaphore is None else _number(arguments.semaphore, "--semaphore", 2**31 - 1),
        max_hold=_seconds(arguments.max_hold, "--max-hold"),
        at_least=_seconds(arguments.at_least, "--at-least") or 0.0,
        grace=_seconds(arguments.grace, "--grace"),
        report=None if arguments.report is None else _number(arguments.report, "--report", 2**31 - 1),
        conflict_exit_code=_number(arguments.conflict_exit_code, "--conflict-exit-code", 255),
    )
    if order.semaphore == 0:
        raise UsageError("--semaphore 0 would never run CMD: give 1 or more")
    shortest = schedule.SHORTEST_HOLD
    if order.max_hold is not None and order.max_hold < shortest:
        given = f"--max-hold {order.max_hold:g}s"
        raise UsageError(f"{given} is too short to stop a command in time: give {shortest:g}s or more")
    if order.max_hold is not None and order.at_least > order.max_hold:
        raise UsageError("--at-least is longer than --max-hold: the lock would be lost before")
    return order


def _split(words: Sequence[str], shell: str | None) -> tuple[str, tuple[str, ...], str | None]:
    rest = list(words[1:] if words[:1] == ["--"] else words)
    if not rest:
        raise UsageError("NAME is missing: holdfast run NAME -- CMD")
    name = rest.pop(0)
    if len(rest) == 2 and rest[0] == "-c" and shell is None:  # as flock(1) has it
        shell, rest = rest[1], []
    if shell is not None:
        if rest:
            raise UsageError("-c STRING and CMD are both given: leave one of them out")
        return name, (_SHELL, "-c", shell), shell
    if rest[:1] == ["--"]:
        rest.pop(0)
    elif rest and rest[0].startswith("-"):
        raise UsageError(f"{rest[0]} stands after NAME: options of holdfast go before NAME, CMD after --")
    if not rest:
        raise UsageError("CMD is missing: holdfast run NAME -- CMD")
    return name, tuple(rest), None


def _seconds(text: str | None, option: str) -> float | None:
    from holdfast._config.durations import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text, what=option)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _number(text: str, option: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= most):
        raise UsageError(f"{option} is not a number from 0 to {most}")
    return int(text)
