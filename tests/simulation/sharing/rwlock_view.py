"""A read-write lock at the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.engines.redis.dialect.keys import shared_keys_of
from tests.simulation.checkers.history import Violation
from tests.simulation.sharing.view import ObjectView, Run

_WRITE = ":write"


class RWLockView(ObjectView):
    """Readers or one writer; a writer's own read is no conflict. A reader's field may outlive its time-out key, if
    others keep the hash: then it counts as a holder until another client removes it."""

    acquire, release, break_ = "rw_acquire", "rw_release", "rw_break"
    waiter_argument = 6
    _last_token = 0
    _lasting: frozenset[str] = frozenset()  # the readers whose time-out keys were there before the script

    def holders(self) -> Mapping[str, str]:
        fields: Mapping[bytes, bytes] = self.model.keys.peek(self.name.encode()) or {}
        found = (field.decode() for field in fields if field != b"mode")
        return {field.removesuffix(_WRITE): "write" if field.endswith(_WRITE) else "read" for field in found}

    def before(self) -> None:
        super().before()
        self._lasting = frozenset(filter(self._lasts, self.was))

    def _lasts(self, owner: str) -> bool:
        """In its last millisecond a key is there, and its PTTL is 0."""
        key = shared_keys_of(self.name).timeout_of(owner).encode()
        keys = self.model.keys
        return keys.peek(key) is not None and (keys.expiry(key) or 0) > self.model.milliseconds()

    def may_drop(self, owner: str) -> bool:
        return self.was[owner] == "read" and owner not in self._lasting

    def conflicts(self, waiter: str, run: Run) -> bool:
        if run.arguments[2] == "write":
            return True
        return not waiter.startswith("r") and self._under(run) is None

    def _under(self, run: Run) -> str | None:
        """The owner of the write inside of which the claim reads."""
        owner = "".join(run.arguments[5:6]).removesuffix(_WRITE)
        return owner if self.was.get(owner) == "write" else None

    def is_granted(self, reply: Any) -> bool:
        return not isinstance(reply, int)

    def check_grant(self, run: Run, now: Mapping[str, str]) -> None:
        reading, token = run.arguments[2] == "read", int(run.reply)
        others = [
            owner
            for owner, how in now.items()
            if owner not in (run.owner, self._under(run)) and not (reading and how == "read")
        ]
        if others:
            raise Violation("I2", f"{self.name}: {run.arguments[2]} granted beside …{others[0][-4:]}: {dict(now)}")
        if token < self._last_token or (token == self._last_token and not reading):
            raise Violation("I5", f"{self.name}: token {token} for …{run.owner[-4:]} after {self._last_token}")
        self._last_token = token

    def check_state(self, run: Run, now: Mapping[str, str]) -> None:
        fields: Mapping[bytes, bytes] = self.model.keys.peek(self.name.encode()) or {}
        if now and fields[b"mode"] != (b"write" if "write" in now.values() else b"read"):
            raise Violation("I2", f"{self.name}: {run.script} left the mode {fields[b'mode']!r} with {dict(now)}")

    def is_renewal_of(self, run: Run) -> list[tuple[str, int]]:
        if run.script != "rw_renew":
            return []
        found = zip(run.keys[::4], run.arguments[3:], run.reply, strict=True)
        return [(field.removesuffix(_WRITE), answer) for name, field, answer in found if name == self.name]
