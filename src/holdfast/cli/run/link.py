"""Messages between runner and guardian: JSON lines on a socket pair. The end of the stream means the peer has died."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Sequence
from typing import Any, Final

Message = dict[str, Any]

_CHUNK: Final = 65536
#: A frozen peer reads nothing. Messages beyond this limit are dropped: signals, and newer deadlines; without those the
#: guardian kills earlier.
_MOST_UNSENT: Final = 65536


class Link:
    """One end. Never blocks."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._unsent = b""
        self._partial = b""
        self.ended = False  #: the peer has closed its end
        self.descriptors: list[int] = []  #: received, in order

    @classmethod
    def pair(cls) -> tuple[Link, Link]:
        ours, theirs = socket.socketpair()
        return cls(ours), cls(theirs)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def events(self) -> int:
        """What to poll for, before :meth:`receive`."""
        return select.POLLIN | (select.POLLOUT if self._unsent else 0)

    def close(self) -> None:
        self._socket.close()

    def hang_up(self) -> None:
        """Send no more. The peer sees the end of the stream; its own messages can still be received."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the peer has closed its end

    def send(self, kind: str, descriptors: Sequence[int] = (), **facts: Any) -> None:
        """Send a message. :meth:`receive` notices if the peer has died."""
        if len(self._unsent) <= _MOST_UNSENT:
            self._unsent += json.dumps({"kind": kind, **facts}).encode() + b"\n"
        self._send_on(descriptors)

    def _send_on(self, descriptors: Sequence[int] = ()) -> None:
        try:
            if descriptors:
                sent = socket.send_fds(self._socket, [self._unsent], descriptors)
            else:
                sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""
            return
        self._unsent = self._unsent[sent:]

    def receive(self) -> list[Message]:
        """All messages that have arrived. Sets ``ended`` at the end of the stream, after the last message.

        Also sends what an earlier :meth:`send` could not.
        """
        if self._unsent:
            self._send_on()
        while not self.ended:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, _CHUNK, 4)
            except BlockingIOError:
                break
            except OSError:
                data, descriptors = b"", []
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            self.descriptors += descriptors
            self._partial += data
            self.ended = not data
        *lines, self._partial = self._partial.split(b"\n")
        return [json.loads(line) for line in lines]
