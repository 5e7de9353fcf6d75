"""The nodes of a register. Pure.

::

    <base>/%registers/<lock>/<part>   its data version is the version of the register
        guard-<token>-<owner>         the last guard that was accepted, as a name: a transaction can check it
        value, queue
        waiters/<waiter>              ephemeral: the waiter is present; a write to it wakes the waiter

They are beside the locks and not below them: Curator takes every child of a lock's node for a contender. No name is
encoded as ``%registers`` or ``%state``, so neither is a lock's node. Registers with users' data are below ``%state``,
where nothing is ever removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.engines.registers import Guard, RegisterKey, Stale
from holdfast.engines.zookeeper import names

_REGISTERS: Final = "%registers"
_STATE: Final = "%state"
_GUARD: Final = "guard-"

#: Of a new register. Every token is larger.
NO_GUARD: Final = Guard(0, "")


def folder(base: str) -> str:
    """The node above all registers that may be forgotten."""
    return f"{base}/{_REGISTERS}"


def folders(base: str, name: str) -> tuple[str, str]:
    """The nodes above the registers of one lock."""
    encoded = names.encode(name)
    return f"{folder(base)}/{encoded}", f"{base}/{_STATE}/{encoded}"


class RegisterPath(NamedTuple):
    root: str

    @classmethod
    def of(cls, base: str, key: RegisterKey) -> RegisterPath:
        forgettable, durable = folders(base, key.name)
        return cls(f"{durable if key.durable else forgettable}/{names.encode(key.part)}")

    @property
    def parent(self) -> str:
        return self.root.rpartition("/")[0]

    @property
    def value(self) -> str:
        return f"{self.root}/value"

    @property
    def queue(self) -> str:
        return f"{self.root}/queue"

    @property
    def waiters(self) -> str:
        return f"{self.root}/waiters"

    def waiter(self, waiter: str) -> str:
        return f"{self.waiters}/{names.encode(waiter)}"

    def guard(self, guard: Guard) -> str:
        return f"{self.root}/{_GUARD}{guard.token}-{names.encode(guard.owner)}"


class Head(NamedTuple):
    """The guard and the version of a register."""

    guard: Guard
    version: int

    def refuses(self, guard: Guard) -> bool:
        return guard.token < self.guard.token or (guard.token == self.guard.token and guard.owner != self.guard.owner)

    @property
    def stale(self) -> Stale:
        return Stale(self.guard.token, self.version)


#: Of a register that does not exist.
NO_HEAD: Final = Head(NO_GUARD, 0)


def head(children: Iterable[str], version: int) -> Head:
    """From the children of a register and its data version."""
    for child in children:
        if child.startswith(_GUARD):
            token, _, owner = child.removeprefix(_GUARD).partition("-")
            return Head(Guard(int(token), names.decode(owner) or ""), version)
    return Head(NO_GUARD, version)


def waiters(children: Iterable[str]) -> frozenset[str]:
    """The waiters that are present, from the children of ``RegisterPath.waiters``."""
    return frozenset(waiter for child in children if (waiter := names.decode(child)) is not None)
