"""One connection for questions, made as the engine makes its own: what the doctor sees is what locks will see."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from hiredis import ReplyError

from holdfast.engines.redis import replies
from holdfast.engines.redis.channel import Argument
from holdfast.engines.redis.handshake import open_socket
from holdfast.engines.redis.packing import pack
from holdfast.engines.redis.settings import Settings
from holdfast.engines.redis.wire import Wire


class Refused(Exception):
    """The server answered with an error. ``code`` is its first word: NOPERM, MOVED, ERR …"""

    def __init__(self, text: str) -> None:
        self.code = replies.code(text)
        # Newer servers name the user, who is nobody's business but the caller's.
        super().__init__("this user has no right to it" if self.code == "NOPERM" else replies.shown(text))
        self.words = text


class Line:
    """Questions and answers in turn. RequestFailed and EngineRefused pass: then there is nobody to ask."""

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._timeout = timeout
        self._wire = Wire(*open_socket(settings, timeout))

    def ask(self, *words: Argument) -> Any:
        """The answer, with bytes as text; an error reply raises Refused."""
        reply = self._wire.call(pack(words), self._timeout)
        if isinstance(reply, ReplyError):
            raise Refused(str(reply))
        return _text(reply)

    def ask_all(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """The answers to several questions, in one round trip; those that were refused are a Refused among them."""
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
