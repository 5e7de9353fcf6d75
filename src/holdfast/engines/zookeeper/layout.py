"""Where the nodes of each kind of object are, and what they are called: Curator's layouts. Pure.

===========  =================================================================================================
lock         ``<path>/_c_<id>-lock-N`` (InterProcessMutex); election: ``latch-`` (LeaderLatch)
rwlock       ``<path>/_c_<id>-__READ__N`` and ``…-__WRIT__N`` (InterProcessReadWriteLock)
semaphore    ``<path>/locks/_c_<id>-lock-N``: the queue; ``<path>/leases/_c_<id>-lease-N``: the permits that are
             held (InterProcessSemaphoreV2); ``<path>/permits``: how many there are (SharedCount)
barrier      ``<path>/_c_<id>-member-P``: a member, of a barrier of P parties; ``<path>/ready``: the round is open
             (DistributedDoubleBarrier, whose own members are ``<path>/<uuid>``)
===========  =================================================================================================

``<path>`` is the node of the object's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.engines.base import Kind, Mode
from holdfast.engines.zookeeper import order

_LEASE: Final = "lease-"
_LATCH: Final = "latch-"
_QUEUE, _LEASES, _SIZE = "locks", "leases", "permits"
_MEMBER: Final = "member-"
_READY: Final = "ready"

#: Of a barrier: a member of ours and its number of parties, or a member of Curator's.
_MEMBERS: Final = re.compile(r"_c_[0-9a-f-]{36}-member-([0-9]{10})|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: The markers of the nodes under ``<path>``.
_MARKERS: Final[dict[Kind, order.Markers]] = {
    Kind.LOCK: order.MUTEX,
    Kind.ELECTION: (_LATCH,),
    Kind.RWLOCK: order.READ_WRITE,
}


def markers(kind: Kind) -> order.Markers:
    """The markers of the nodes in its queue."""
    return _MARKERS.get(kind, order.MUTEX)


def contender(uuid: str, mode: Mode) -> str:
    """The name to create for a claim's node in the queue; the server appends the number."""
    return order.protected(uuid, markers(mode.kind)[0] if mode.shared or mode.kind is not Kind.RWLOCK else order.WRITE)


def blocking(children: Iterable[str], own: str, mode: Mode) -> str | None:
    """The child to wait for before ``own`` may hold a lock; None: it holds."""
    if mode.kind is Kind.RWLOCK:
        return order.conflicting(children, own, shared=mode.shared)
    return order.predecessor(children, own, markers(mode.kind))


def nested(uuid: str, write: str) -> str:
    """The node of a read inside the write whose node is ``write``: it has the same number, so that it stays before
    writers that wait when the write has ended."""
    return order.protected(uuid, order.READ) + write.rpartition(order.WRITE)[2]


def lease(uuid: str, index: int) -> str:
    """One permit's node. The server appends nothing: the order of leases does not matter, and a name that was given
    beforehand cannot be created twice."""
    return f"{order.protected(uuid, _LEASE)}{index:010d}"


def member(uuid: str, parties: int) -> str:
    """The node of a barrier's member. Only its presence counts; the number is for the other members."""
    return f"{order.protected(uuid, _MEMBER)}{parties:010d}"


def members(children: Iterable[str]) -> Sequence[str]:
    """All members of a barrier. As for Curator, every child is one."""
    return [child for child in children if child != _READY]


def parties(member: str) -> int | None:
    """How many parties a member of a barrier expects. Curator's do not say it."""
    found = _MEMBERS.fullmatch(member)
    return None if found is None or found[1] is None else int(found[1])


def ready(path: str) -> str:
    """The node of a barrier whose round is open."""
    return f"{path}/{_READY}"


def queue(path: str, kind: Kind) -> str:
    """Where the nodes of its queue are."""
    return f"{path}/{_QUEUE}" if kind is Kind.SEMAPHORE else path


def leases(path: str) -> str:
    return f"{path}/{_LEASES}"


def size(path: str) -> str:
    return f"{path}/{_SIZE}"


def folders(path: str, kind: Kind) -> tuple[str, ...]:
    """Where nodes of one claim may be."""
    return (queue(path, kind), leases(path)) if kind is Kind.SEMAPHORE else (path,)


def kind_of(children: Iterable[str]) -> Kind | None:
    """The kind of an object, by the children of its path; None if they do not show it."""
    return next(filter(None, map(_shown_by, children)), None)


def other_kind(children: Iterable[str], kind: Kind, before: int | None = None) -> Kind | None:
    """Another kind than ``kind`` that the name is in use as. ``before``: numbered children count only below this
    number, so that of two kinds that meet under a name, the later one is refused."""
    for child in children:
        found = _shown_by(child)
        if found is None or found is kind:
            continue
        number = order.sequence_of(child, markers(found))
        if before is None or number is None or number < before:
            return found
    return None


def _shown_by(child: str) -> Kind | None:
    """A semaphore's queue alone shows nothing: it remains for a minute after a claim that was refused."""
    if child in (_LEASES, _SIZE):
        return Kind.SEMAPHORE
    if child == _READY or _MEMBERS.fullmatch(child):
        return Kind.BARRIER
    return next((kind for kind, marks in _MARKERS.items() if order.sequence_of(child, marks) is not None), None)


def label(node: str, kind: Kind) -> str:
    """The mode in which the owner of a node holds or wants the object, as ``Holder.mode`` shows it."""
    shared = order.WRITE not in node
    return Mode(kind, shared).label
