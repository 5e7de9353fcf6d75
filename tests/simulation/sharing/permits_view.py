"""A semaphore at the server."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.simulation.checkers.history import Violation
from tests.simulation.redis_model.server import RedisModel
from tests.simulation.sharing.view import ObjectView, Run


class PermitsView(ObjectView):
    """Never more permits out than there are, unless it was made smaller; none is made or lost but by a resize."""

    acquire, release, break_ = "permits_acquire", "permits_release", "permits_break"
    waiter_argument = 7

    def __init__(self, model: RedisModel, name: str) -> None:
        super().__init__(model, name)
        self._owner_of: dict[bytes, str] = {}  # by the id of a permit
        self._size_was: int | None = None

    def _out(self) -> Mapping[bytes, float]:
        return self.model.keys.peek(self.keys.timeouts.encode()) or {}

    def free(self) -> int | None:
        """The number of free permits; None if it is not there: then it is the size less those that are out."""
        text = self.model.keys.peek(self.name.encode())
        return None if text is None else int(text)

    def size(self) -> int | None:
        free = self.free()
        return None if free is None else free + len(self._out())

    def holders(self) -> Mapping[str, int]:
        now = self.model.milliseconds()
        return Counter(self._owner_of[permit] for permit, ends in self._out().items() if ends > now)

    def before(self) -> None:
        super().before()
        self._size_was = self.size()

    def after(self, run: Run) -> Any:
        if run.script == self.acquire and self.name in run.keys:
            for number in range(1, int(run.arguments[2]) + 1):
                permit = hashlib.sha1(f"{run.owner}#{number}".encode(), usedforsecurity=False).hexdigest()[:16].encode()
                self._owner_of[permit] = run.owner
        return super().after(run)

    def conflicts(self, waiter: str, run: Run) -> bool:
        return True

    def is_granted(self, reply: Any) -> bool:
        return not isinstance(reply, int) and reply[0] is not None

    def check_grant(self, run: Run, now: Mapping[str, int]) -> None:
        wanted, size = int(run.arguments[2]), self.size()
        if now[run.owner] != wanted:
            raise Violation("I4", f"{self.name}: …{run.owner[-4:]} wants {wanted} permits and has {now[run.owner]}")
        if size is not None and sum(now.values()) > size:
            raise Violation("I2", f"{self.name}: {sum(now.values())} permits of {size} are out: {dict(now)}")

    def check_state(self, run: Run, now: Mapping[str, int]) -> None:
        size, expected = self.size(), self._size_was
        if run.script == "permits_resize" and run.reply is not None:  # else it was done before
            expected = int(run.arguments[0])
        elif expected is None and run.script == self.acquire:
            expected = int(run.arguments[3])
        if size is not None and size != expected:
            raise Violation("I2", f"{self.name}: {run.script} made {expected} permits into {size}")
        impossible = run.script == self.acquire and not isinstance(run.reply, int) and run.reply[0] is None
        if impossible and (size is None or int(run.arguments[2]) <= size):
            raise Violation("I4", f"{self.name}: {run.arguments[2]} of {size} permits were called impossible")

    def is_renewal_of(self, run: Run) -> list[tuple[str, int]]:
        if run.script != "permits_renew":
            return []
        found = zip(run.keys[1::3], run.arguments[3::2], run.reply, strict=True)
        return [(owner, answer) for name, owner, answer in found if name == self.name]

    def left_model(self, *, all_keys: bool) -> list[str]:
        # Without all other keys only the number of free permits is gone: those that are out are known.
        return super().left_model(all_keys=True) if all_keys else []
