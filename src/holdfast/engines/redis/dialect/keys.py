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
#: A lock of such a name would be the side key of another lock, ours or Java's, or a guard of RedisFence.
_RESERVED: Final = (
    "holdfast_fence:",
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
    "redisson_unlock_latch:",
)
#: Redis' glob: these characters mean something in a pattern.
_GLOB: Final = str.maketrans({character: f"\\{character}" for character in "*?[]\\"})


def prefixed(prefix: str, name: str) -> str:
    """Redisson's rule for the key of ``prefix`` beside ``name``."""
    return f"{prefix}:{name}" if "{" in name else f"{prefix}:{{{name}}}"


class Keys:
    """All keys of one lock. Made once per name, because the hot path uses them twice for every lock."""

    __slots__ = (
        "_release_closings", "acquire", "channel", "inspect", "join", "metadata", "name", "queue", "raise_",
        "redisson_queue", "release", "renew", "token",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name  #: hash: owner -> count
        self.token = prefixed("redisson_lock_token", name)  #: the fencing counter, Redisson's RFencedLock
        self.metadata = prefixed(OWNER, name)  #: token, time and description of the present grant; the lock's TTL
        self.queue = prefixed("holdfast_queue", name)  #: list of waiters
        tombstones = prefixed("holdfast_lock", name)  #: + ":gone:" + owner: a claim that must not come back
        self.channel = prefixed("redisson_lock__channel", name)  #: where a release is published
        self.acquire = Opening.of(ACQUIRE, (name, self.token, self.metadata, self.queue, tombstones), arguments=7)
        self.release = Opening.of(RELEASE, (name, self.metadata, tombstones), arguments=4)
        self._release_closings: dict[str, Closing] = {}
        self.raise_ = (name, self.token, self.metadata)
        self.join = (name, self.token, self.metadata, tombstones)
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
    """A glob that finds the metadata keys of all names beginning with ``prefix``, and some others."""
    return f"{OWNER}:*{prefix.translate(_GLOB)}*" if prefix else f"{OWNER}:*"


def names_of(metadata: str) -> tuple[str, ...]:
    """The names whose metadata key this is. Two, where the prefix rule cannot distinguish ``x`` from ``{x}``."""
    name = metadata[len(OWNER) + 1 :]
    inner = name[1:-1]
    return (inner, name) if name == f"{{{inner}}}" and inner and "{" not in inner else (name,)
