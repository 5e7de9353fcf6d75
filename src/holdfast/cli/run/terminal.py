"""The terminal: which process group is in its foreground, and its settings.

Used by the guardian, which is itself in the background and has SIGTTOU blocked; otherwise it would be stopped.
"""

from __future__ import annotations

import os
import termios
from typing import Any


class Terminal:
    """The controlling terminal of this session. ``home`` is the runner's process group: a job of the user's shell."""

    def __init__(self, fileno: int, home: int) -> None:
        self._fileno = fileno
        self._home = home
        #: If stdin and stdout are on the terminal, the command gets it at its start. In a pipeline (``holdfast run … |
        #: less``) another program may read the keys: then the command gets it when it needs it (SIGTTIN, SIGTTOU).
        self.wanted = os.isatty(0) and os.isatty(1)
        self._settings: list[Any] | None = None

    @classmethod
    def open(cls, home: int) -> Terminal | None:
        """None without a controlling terminal: cron, systemd, Kubernetes, ``setsid``."""
        try:
            return cls(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY), home)
        except OSError:
            return None

    def at_home(self) -> bool:
        """Whether the runner's job is in the foreground."""
        return self._foreground() == self._home

    def give(self, group: int) -> bool:
        """Put the command's process group in the foreground, if the runner's job is there. False if it is not."""
        return self.at_home() and self._put(group)

    def remember(self) -> None:
        """Keep the settings, for ``take_back``. Called before the command starts."""
        try:
            self._settings = termios.tcgetattr(self._fileno)
        except (OSError, termios.error):
            self._settings = None

    def take_back(self, group: int, *, restore: bool) -> None:
        """Put the runner's job in the foreground again, if the command's is there. The shell may have done it already.

        ``restore``: the command was killed, and could not restore the settings itself (echo, raw mode).
        """
        if self._foreground() == group:
            self._put(self._home)
            if restore and self._settings is not None:
                try:
                    termios.tcsetattr(self._fileno, termios.TCSADRAIN, self._settings)
                except (OSError, termios.error):
                    pass  # it hung up

    def _foreground(self) -> int | None:
        try:
            return os.tcgetpgrp(self._fileno)
        except OSError:
            return None

    def _put(self, group: int) -> bool:
        try:
            os.tcsetpgrp(self._fileno, group)
        except OSError:  # the group has ended, or the terminal hung up
            return False
        return True
