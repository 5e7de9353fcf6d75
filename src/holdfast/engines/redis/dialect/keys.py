"""The keys of a lock, on Redisson's wire format. No I/O.

The lock itself is a hash at the raw name; everything beside it is found by Redisson's prefix rule, quirks included:
``{`` *anywhere* in the name makes it ``prefix:name``, else it is ``prefix:{name}``, so that all keys share a slot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from holdfast.engines.redis.dialect.requests import Closing, Opening, Publish
from holdfast.engines.redis.scripts import ACQUIRE, RELEASE
from holdfast.errors import InvalidName

OWNER: Final = "holdfast_owner"
HOLDERS: Final = "holdfast_holders"
_BROKEN: Final = "holdfast_broken:"
#: A lock of such a name would be the side key of another lock, ours or Java's, or a guard of RedisFence.
_RESERVED: Final = (
    _BROKEN,
    "holdfast_fence:",
    "holdfast_holders:",
    "holdfast_lock:",
    "holdfast_owner:",
    "holdfast_probe:",
    "holdfast_queue:",
    "holdfast_register:",
    "holdfast_register_present:",
    "holdfast_register_wake:",
    "redisson_lock__channel:",
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
    "redisson_lock_token:",
    "redisson_rwlock:",
    "redisson_sc:",
    "redisson_unlock_latch:",
)
#: Redis' glob: these characters mean something in a pattern.
_GLOB: Final = str.maketrans({character: f"\\{character}" for character in "*?[]\\"})


def prefixed(prefix: str, name: str) -> str:
    """Redisson's rule for the key of ``prefix`` beside ``name``."""
    return f"{prefix}:{name}" if "{" in name else f"{prefix}:{{{name}}}"


def suffixed(name: str, suffix: str) -> str:
    """Redisson's rule for the key beside ``name`` that ends with ``suffix``."""
    return f"{name}:{suffix}" if "{" in name else f"{{{name}}}:{suffix}"


class Keys:
    """All keys of one lock. Made once per name, because the hot path uses them twice for every lock."""

    __slots__ = (
        "_release_closings", "acquire", "channel", "inspect", "join", "metadata", "name", "queue", "raise_",
        "redisson_queue", "release", "renew", "timeouts", "token", "tombstones",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name  #: hash: owner -> count
        self.token = prefixed("redisson_lock_token", name)  #: the fencing counter, Redisson's RFencedLock
        self.metadata = prefixed(OWNER, name)  #: token, time and description of the present grant; the lock's TTL
        self.queue = prefixed("holdfast_queue", name)  #: list of waiters
        self.tombstones = prefixed("holdfast_lock", name)  #: + ":gone:" + owner: a claim that must not come back
        self.channel = prefixed("redisson_lock__channel", name)  #: where a release is published
        self.acquire = Opening.of(ACQUIRE, (name, self.token, self.metadata, self.queue, self.tombstones), arguments=7)
        self.release = Opening.of(RELEASE, (name, self.metadata, self.tombstones), arguments=4)
        self._release_closings: dict[str, Closing] = {}
        self.raise_ = (name, self.token, self.metadata)
        self.join = (name, self.token, self.metadata, self.tombstones)
        self.timeouts = suffixed(name, "timeout")  #: of a semaphore: the permits that are out
        self.inspect = (name, self.token, self.metadata, self.queue)
        self.redisson_queue = prefixed("redisson_lock_queue", name)  #: of Redisson's fair lock
        self.renew = (name, self.metadata, self.token)

    def release_closing(self, publish: Publish) -> Closing:
        """The end of a release request without a tombstone, packed once."""
        closing = self._release_closings.get(publish)
        if closing is None:
            closing = self._release_closings[publish] = Closing.of(self.channel, publish, 0)
        return closing

    def waiter(self, waiter: str) -> str:
        """The key that is there as long as ``waiter`` is. Scripts build it the same way, from the queue's key."""
        return f"{self.queue}:{waiter}"


@lru_cache(maxsize=4096)
def keys_of(name: str) -> Keys:
    """The keys of the lock ``name``."""
    return Keys(name)


class SharedKeys:
    """What a read-write lock or a semaphore has beside the keys of a lock."""

    __slots__ = ("broken", "holders", "permits_channel", "readers", "rwlock_channel")

    def __init__(self, name: str) -> None:
        self.holders = prefixed(HOLDERS, name)  #: hash: owner -> token, time and description of its grant
        self.broken = prefixed(_BROKEN[:-1], name)  #: written when holders are broken: they watch it
        self.readers = name if "{" in name else f"{{{name}}}"  #: what the time-out keys of readers begin with
        self.rwlock_channel = prefixed("redisson_rwlock", name)
        self.permits_channel = prefixed("redisson_sc", name)

    def timeout_of(self, owner: str) -> str:
        """The time-out key of a reader's only hold."""
        return f"{self.readers}:{owner}:rwlock_timeout:1"


@lru_cache(maxsize=4096)
def shared_keys_of(name: str) -> SharedKeys:
    """The further keys of the read-write lock or semaphore ``name``."""
    return SharedKeys(name)


def validate(name: str) -> None:
    """Refuse a name whose lock would be another lock's side key."""
    for prefix in _RESERVED:
        if name.startswith(prefix):
            raise InvalidName(
                f"names that begin with {prefix!r} are keys of locks, not locks; use namespace=", name=name
            )


def validate_for_cluster(name: str) -> None:
    """As ``validate``, and refuse a name whose side keys would fall into another slot than the lock (CROSSSLOT).

    By the prefix rule: one with ``{`` but no complete ``{…}`` after it, or with ``}`` but no ``{``.
    """
    validate(name)
    if hash_tag(name) != hash_tag(prefixed(OWNER, name)):
        raise InvalidName("in a cluster, braces in a name must be one hash tag such as {tag}; remove them", name=name)


def hash_tag(key: str) -> str:
    """What a cluster hashes of ``key``: the text in the first braces, if there is any, else all of it."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return tag if opened and closed and tag else key


def is_side_key(key: str) -> bool:
    """Whether ``key`` cannot be a lock's own."""
    return key.startswith(_RESERVED)


def pattern(prefix: str) -> str:
    """A glob that finds what is stored about holders of all names beginning with ``prefix``, and some others."""
    return f"holdfast_[oh]*er*:*{prefix.translate(_GLOB)}*" if prefix else "holdfast_[oh]*er*:*"


def names_of(key: str) -> tuple[str, ...]:
    """The names which this key holds something about, if ``pattern`` has found it."""
    for prefix in (OWNER, HOLDERS):
        if key.startswith(f"{prefix}:"):
            return _names(key[len(prefix) + 1 :])
    return ()


def suspected(key: str) -> tuple[str, ...]:
    """The names that are suspect when ``key`` was pushed."""
    if key.startswith(_BROKEN):
        return _names(key[len(_BROKEN) :])
    return () if is_side_key(key) else (key,)


def _names(name: str) -> tuple[str, ...]:
    """Two, where the prefix rule cannot distinguish ``x`` from ``{x}``."""
    inner = name[1:-1]
    return (inner, name) if name == f"{{{inner}}}" and inner and "{" not in inner else (name,)
