"""``holdfast run NAME -- CMD``: run a command while a lock is held.

Three processes. The *runner* is the process that was started: it takes the lock, renews it and reports. The *guardian*
is forked from it before any thread exists; it is small, has one thread, and starts and kills the command. The
*command* is the guardian's child, in a process group of its own.

Runner and guardian watch each other. If the runner dies, the guardian kills the command and all its descendants; if the
guardian dies, the kernel kills the command and the runner kills the descendants. If the runner is frozen, the guardian
kills at the last deadline that the runner reported: the command is dead before the lock can be granted again.

Read ``schedule.py`` first (what is killed when, pure), then ``runner.py`` (the steps of a run). The rest:

- ``arguments.py``: the command line. ``lookup.py``: the program behind CMD. ``environment.py``: what CMD finds in its
  environment, and the refusal of a nested run that would wait for itself.
- ``guardian.py``: the guardian's loop. ``launcher.py``: the child before exec. ``descendants.py``: finding and killing
  all descendants. ``kernel.py``: prctl. ``terminal.py``: the foreground process group.
- ``supervisor.py``: the runner's loop while CMD runs. ``signals.py``: signals of the runner. ``link.py``: messages
  between the two. ``ending.py``: keeping and releasing the lock after CMD's end. ``outcome.py``: exit codes, the line
  for ``--report``.

Modules that are imported before the fork import little: the guardian is forked first, and the runner imports the lock
engine while the guardian prepares itself.
"""

from __future__ import annotations

import argparse

from holdfast.cli.run.arguments import configure

__all__ = ["configure", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Run the command; the exit code is the command's own, or one of ``cli.exit_codes``."""
    from holdfast.cli.run.runner import main  # not above: every call of ``holdfast`` imports this module

    return main(arguments)
