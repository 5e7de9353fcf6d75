"""The buffer at the server, checked with each store that changes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from holdfast.engines.redis.dialect.registers import keys_of
from holdfast.engines.registers import RegisterKey
from tests.simulation.checkers.engine_view import Change, EngineView
from tests.simulation.checkers.history import Violation
from tests.simulation.redis_model.server import RedisModel

NAME: Final = "a"
KEY: Final = RegisterKey(NAME, "monitor", durable=True)
CAPACITY: Final = 2
#: Of the scripts that store: how many arguments are before the token.
_BEFORE_TOKEN: Final = {"store": 0, "store_release": 4}
#: The conditions of the buffer.
ITEMS: Final = "items"
SPACE: Final = "space"


class BufferView(EngineView):
    """The lock, as in other worlds; and invariant I3: each store puts one new item, takes the first, or does neither,
    in the order of tokens."""

    def __init__(self, model: RedisModel, names: Sequence[str]) -> None:
        super().__init__(model, names)
        self.register = keys_of(KEY).register.encode()
        self.items: list[int] = []
        self.put: set[int] = set()
        self.taken: set[int] = set()
        self._stored_under = 0
        self._version = b"0"

    def after(self, script: str, words: Sequence[bytes], reply: Any) -> Change:
        change = super().after(script, words, reply)
        version = (self._model.keys.peek(self.register) or {}).get(b"version", b"0")
        if version != self._version:
            self._version = version
            self._stored(int(words[3 + int(words[2]) + _BEFORE_TOKEN[script]]))
        return change

    def _stored(self, token: int) -> None:
        if token < self._stored_under:
            raise Violation("I3", f"a store under token {token} after one under {self._stored_under}")
        self._stored_under = token
        value = self._model.keys.peek(self.register)[b"value"] if self._has_value() else b""
        before, self.items = self.items, json.loads(value)["items"] if value else []
        if self.items == before:
            return
        if self.items == before[1:]:
            self.taken.add(before[0])
        elif self.items[:-1] == before and self.items[-1] not in self.put:
            self.put.add(self.items[-1])
        else:
            raise Violation("I3", f"a store under token {token} made {before} into {self.items}")

    def _has_value(self) -> bool:
        return b"value" in (self._model.keys.peek(self.register) or {})

    def found_by(self, condition: str) -> object:
        """What a waiter for ``condition`` would find: it changes when another caller takes that. None: nothing."""
        if condition == ITEMS:
            return self.items[0] if self.items else None
        return None if len(self.items) >= CAPACITY else len(self.put)
