"""The command's process between fork and exec."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, NoReturn

from holdfast.cli.run import kernel
from holdfast.cli.run.terminal import Terminal

#: Python ignores these for itself. The command gets the default, as from ``subprocess``.
PYTHONS_OWN: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
_NEVER_RUN: Final = 127


class Program(NamedTuple):
    """What to execute."""

    path: str
    argv: tuple[str, ...]
    ignored: Collection[int]  #: signals that were ignored when the runner started (nohup) stay ignored


def ignored_signals() -> frozenset[int]:
    """The signals that this process was started to ignore."""
    everything = signal.valid_signals() - PYTHONS_OWN
    return frozenset(number for number in everything if signal.getsignal(number) is signal.SIG_IGN)


def launch(program: Program, environment: Mapping[str, str], liveness: int | None, terminal: Terminal | None) -> Launch:
    """Fork the command. All signals are blocked here, and in the child until just before exec."""
    parent = os.getpid()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _execute(program, environment, liveness, terminal, parent)
        except BaseException as error:
            number = error.errno if isinstance(error, OSError) else None
            os.write(writing, str(number or 0).encode())
        finally:
            os._exit(_NEVER_RUN)
    os.close(writing)
    try:
        os.setpgid(pid, pid)  # here too: the group must exist before the first signal is sent to it
    except OSError:
        pass  # it has executed, or ended, already
    return Launch(pid, reading)


class Launch(NamedTuple):
    """The command's process. ``reading``: errno as text if exec failed, nothing if it succeeded."""

    pid: int
    reading: int


def _execute(
    program: Program, environment: Mapping[str, str], liveness: int | None, terminal: Terminal | None, parent: int
) -> NoReturn:
    os.setpgid(0, 0)
    if kernel.die_with_parent() and os.getppid() != parent:
        os._exit(_NEVER_RUN)  # the guardian died before prctl was called
    if terminal is not None and terminal.wanted:
        terminal.give(os.getpid())
    if liveness is not None:
        os.set_inheritable(liveness, True)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in program.ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execve(program.path, program.argv, environment)
