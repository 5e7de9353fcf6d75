"""How a run ended: the exit code, one line on stderr, one JSON line for ``--report``."""

from __future__ import annotations

import fcntl
import json
import os
from typing import Final, Literal, NamedTuple

from holdfast.cli import exit_codes
from holdfast.cli.output import write_error
from holdfast.errors import UsageError

#: What lines on stderr begin with.
COMMAND: Final = "holdfast run"

Kind = Literal[
    "ended", "lost", "busy", "unavailable", "refused", "usage", "settings", "cannot_run", "not_found", "signalled"
]
#: What the report says for an error's exit code.
KINDS: Final[dict[int, Kind]] = {
    exit_codes.USAGE: "usage",
    exit_codes.UNAVAILABLE: "unavailable",
    exit_codes.BUSY: "busy",
    exit_codes.REFUSED: "refused",
    exit_codes.SETTINGS: "settings",
}


class Outcome(NamedTuple):
    """``code``: the runner's exit code. ``command``: the command's own, negative for a signal; None: never started."""

    kind: Kind
    code: int
    message: str | None = None
    command: int | None = None
    signal: int | None = None
    lost_reason: str | None = None


class Times:
    """Seconds for the report; None for what did not happen."""

    waited: float | None = None
    held: float | None = None
    token: int | None = None
    owner: str | None = None


def shell_code(code: int) -> int:
    """The exit code of a command as a shell has it: 128 + n if it died of signal n."""
    return exit_codes.SIGNALLED - code if code < 0 else code


class Report:
    """The descriptor of ``--report``. Checked before others are opened: a wrong number must not match one of them."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        if descriptor is None:
            return
        try:
            writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)
        except OSError:
            writable = False
        if not writable:
            self.descriptor = None
            raise UsageError(f"--report {descriptor}: no descriptor of this number is open for writing")
        if descriptor > 2:
            # The reader waits for the end of the stream: the command must not keep it open.
            os.set_inheritable(descriptor, False)

    @property
    def private(self) -> list[int]:
        """The descriptor, if only the runner needs it."""
        return [self.descriptor] if self.descriptor is not None and self.descriptor > 2 else []

    def write(self, name: str, outcome: Outcome, times: Times) -> None:
        """Write the line. A failure is only a warning: the exit code must stay that of the command."""
        if self.descriptor is None:
            return
        line = {
            "outcome": outcome.kind,
            "name": name,
            "exit_code": outcome.code,
            "command_exit_code": None if outcome.command is None else shell_code(outcome.command),
            "signal": outcome.signal,
            "lost_reason": outcome.lost_reason,
            "token": times.token,
            "owner": times.owner,
            "waited": _rounded(times.waited),
            "held": _rounded(times.held),
        }
        data = json.dumps(line).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.descriptor, data) :]
        except OSError as error:
            write_error(f"the report could not be written: {error.strerror}", command=COMMAND)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
