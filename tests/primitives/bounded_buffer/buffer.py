"""A bounded buffer as a monitor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import holdfast

ROOM: Final = 10


class Buffer(holdfast.Monitor):
    """``put`` waits for room, ``take`` for an item. It also remembers each consumer's last item: a consumer that is
    killed after its ``take`` cannot tell."""

    items: list[int] = []  # noqa: RUF012
    taken: dict[str, int] = {}  # noqa: RUF012
    not_empty = holdfast.condition()
    not_full = holdfast.condition()

    @holdfast.synchronized
    def put(self, item: int) -> None:
        self.not_full.wait_for(lambda: len(self.items) < ROOM)
        self.items.append(item)
        self.not_empty.notify()

    @holdfast.synchronized
    def take(self, consumer: str, meanwhile: Callable[[], None]) -> int:
        """``meanwhile`` is called while the lock is held."""
        self.not_empty.wait_for(lambda: self.items)
        item = self.items.pop(0)
        self.taken[consumer] = item
        meanwhile()
        self.not_full.notify()
        return item

    def content(self) -> tuple[list[int], dict[str, int]]:
        """The items, and each consumer's last one."""
        state = self.snapshot()
        return state["items"], state["taken"]
