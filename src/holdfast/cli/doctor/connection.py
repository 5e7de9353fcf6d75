"""A connection for the doctor's questions, opened as the engine opens its own, so that both see the same."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from hiredis import ReplyError

from holdfast.engines.redis.connections.handshake import open_socket
from holdfast.engines.redis.connections.settings import Settings
from holdfast.engines.redis.connections.wire import Wire
from holdfast.engines.redis.dialect import replies
from holdfast.engines.redis.dialect.packing import Argument, pack


class Refused(Exception):
    """The server answered with an error. ``code`` is its first word: NOPERM, MOVED, ERR …"""

    def __init__(self, text: str) -> None:
        self.code = replies.code(text)
        # Newer servers name the user in this error, which must not be shown.
        super().__init__("this user has no right to it" if self.code == "NOPERM" else replies.shown(text))
        self.words = text


class Connection:
    """Sends questions, one at a time. Raises RequestFailed or EngineRefused if the server cannot be asked at all."""

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._timeout = timeout
        self._wire = Wire(*open_socket(settings, timeout))

    def ask(self, *words: Argument) -> Any:
        """The answer, with bytes as text; an error reply raises Refused."""
        reply = self._wire.call(pack(words), self._timeout, time.monotonic())
        if isinstance(reply, ReplyError):
            raise Refused(str(reply))
        return _text(reply)

    def ask_all(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """The answers to several questions, in one round trip. A refused question has a Refused as its answer."""
        answers = self._wire.ask(commands, self._timeout)
        return [Refused(str(answer)) if isinstance(answer, ReplyError) else _text(answer) for answer in answers]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wire.abort()


def pairs(reply: Any) -> dict[str, str]:
    """Names and values: a map in RESP3, a flat list from some servers."""
    return dict(reply) if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=False))


def _text(reply: Any) -> Any:
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "replace")
    if isinstance(reply, dict):
        return {_text(name): _text(value) for name, value in reply.items()}
    if isinstance(reply, list):
        return [_text(item) for item in reply]
    return reply
