"""A read inside the caller's own write of a read-write lock."""

from __future__ import annotations

from holdfast.engines.base import Claim, SimpleAttempt
from holdfast.engines.zookeeper import layout
from holdfast.engines.zookeeper.place import Place


class NestedAttempt(SimpleAttempt):
    """``write``: the place of the write. The read has its number, its session and its fencing token."""

    __slots__ = ("write",)

    def __init__(self, claim: Claim, write: Place) -> None:
        super().__init__(claim)
        self.write = write

    def path(self, uuid: str) -> str:
        return f"{self.write.parent}/{layout.nested(uuid, self.write.node)}"
