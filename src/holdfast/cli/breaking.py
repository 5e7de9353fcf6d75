"""``holdfast break NAME --token T``: take a lock from its holder, if the holder still has this token."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from holdfast.cli import connecting
from holdfast.cli.exit_codes import BUSY, FAILED, OK, USAGE
from holdfast.cli.output import write_error, write_json, write_notice, write_result
from holdfast.cli.quoting import shell_words

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.engines.base import LockState

_log: Final = logging.getLogger("holdfast.operator")
_COMMAND: Final = "holdfast break"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the lock's name, without the namespace")
    parser.add_argument(
        "--token", metavar="T", type=_token, help="break it only if this is the holder's token; see holdfast show NAME"
    )
    parser.add_argument("--reason", metavar="TEXT", help="for the log")
    connecting.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.epilog = (
        "Exit code: 0 broken; 1 not held, or not confirmed; 75 another holder has it now; 64 wrong usage, also: no "
        "--token, and no terminal to ask on. The holder's code is not stopped: use it on holders that are gone, or "
        "whose writes are fenced."
    )


def run(arguments: argparse.Namespace) -> int:
    """Break the lock if its holder has the given token, or after it was shown and confirmed."""
    from holdfast.cli.lock_state import token_of

    with connecting.connect(arguments) as client:
        state = client.inspect(arguments.name)
        if not state.holders:
            return _not_broken(state)
        token = arguments.token
        if token is None:
            token = token_of(state)
            if not _on_terminal():
                return _refuse(arguments, token)
            if not _confirmed(state, token):
                write_error("not confirmed: nothing was broken", command=_COMMAND)
                return FAILED
        if not _break(client, arguments.name, token):
            return _not_broken(client.inspect(arguments.name))
    _report(arguments, state, token)
    return OK


def _break(client: Client, name: str, token: int | None) -> bool:
    """The engine compares the token: the lock may have got another holder since it was inspected."""
    return client.break_(name, token=token)


def _not_broken(state: LockState) -> int:
    from holdfast.cli.lock_state import person, token_of

    if not state.holders:
        write_error(f"{state.kind} {state.name!r} is not held", command=_COMMAND)
        return FAILED
    write_error(
        f"{state.kind} {state.name!r} was not broken: it is now held by {person(state.holders[0])} with token "
        f"{token_of(state)}",
        command=_COMMAND,
    )
    return BUSY


def _on_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _refuse(arguments: argparse.Namespace, token: int | None) -> int:
    """There is no terminal to ask on: print the command that needs no confirmation."""
    if token is None:
        sentence = "its holder has no token (another library's lock): run this on a terminal, to confirm"
    else:
        options = [("--profile", arguments.profile), ("--namespace", arguments.namespace)]
        given = [word for option, value in options if value is not None for word in (option, value)]
        command = shell_words(["holdfast", "break", *given, "--token", str(token), "--", arguments.name])
        # The URL is not repeated: it may contain a password.
        same = ", with the same --url," if arguments.url is not None else ""
        sentence = f"to take it from the present holder, run{same} {command}"
    write_error(f"there is no terminal to ask on; {sentence}", command=_COMMAND)
    return USAGE


def _confirmed(state: LockState, token: int | None) -> bool:
    from holdfast.cli.lock_state import as_lines

    write_notice("\n".join(as_lines(state, time.time())))
    if token is None:
        write_notice("Its holder has no token: if the lock gets another holder meanwhile, that one loses it.")
    write_notice("Its holder is not stopped. Type yes to break the lock:")
    try:
        return sys.stdin.readline().strip().lower() == "yes"
    except UnicodeDecodeError:  # the terminal's encoding is not that of the locale
        return False


def _report(arguments: argparse.Namespace, state: LockState, token: int | None) -> None:
    """Log the reason, and print the result."""
    from holdfast.cli.lock_state import holder_data, person

    reason = arguments.reason
    if reason is not None:
        _log.warning(
            "%s %r, token %s: broken by uid %d, reason: %r", state.kind, state.name, token, os.getuid(), reason
        )
    if arguments.json:
        holder = holder_data(state.holders[0])
        write_json({"name": state.name, "broken": True, "token": token, "reason": reason, "holder": holder})
        return
    because = f": {reason}" if reason is not None else ""
    write_result(f"broke {state.kind} {state.name!r}, token {token}, held by {person(state.holders[0])}{because}")


def _token(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is no token: a token is a whole number, as holdfast show prints it")
    return int(text)
