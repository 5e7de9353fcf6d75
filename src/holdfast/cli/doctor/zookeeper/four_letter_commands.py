"""ZooKeeper's four-letter words: what a server tells to anybody who asks in plain text, if its settings let it."""

from __future__ import annotations

import socket
import ssl
from typing import Final

_LONGEST: Final = 1 << 16
_NOT_ALLOWED: Final = "not in the whitelist"
_IDLE: Final = "not currently serving requests"


class Withheld(Exception):
    """The word is not on the server's list, or nothing came of it."""


class Idle(Exception):
    """The server runs, and serves nobody."""


def ask(address: tuple[str, int], word: str, timeout: float, tls: ssl.SSLContext | None) -> str:
    """The answer. Raises Withheld, Idle, or OSError if the server cannot be reached at all."""
    said = b""
    with socket.create_connection(address, timeout) as plain:
        try:
            with tls.wrap_socket(plain, server_hostname=address[0]) if tls else plain as line:
                line.sendall(word.encode())
                while len(said) < _LONGEST and (part := line.recv(4096)):
                    said += part
        except OSError as error:
            raise Withheld(str(error) or type(error).__name__) from error
    text = said.decode("utf-8", "replace")
    if _NOT_ALLOWED in text:
        raise Withheld("it is not on 4lw.commands.whitelist")
    if _IDLE in text:
        raise Idle
    if not text:
        raise Withheld("it hung up")
    return text


def lines(text: str, separator: str) -> dict[str, str]:
    """``name<separator>value`` on each line; other lines are left out."""
    pairs = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, found, value in pairs if found}
