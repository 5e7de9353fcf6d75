"""The keys of a lock, on Redisson's wire format. No I/O.

The lock itself is a hash at the raw name; everything beside it is found by Redisson's prefix rule, quirks included:
``{`` *anywhere* in the name makes it ``prefix:name``, else it is ``prefix:{name}``, so that all keys share a slot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from holdfast.engines.redis.dialect.requests import Closing, Opening, Publish
from holdfast.engines.redis.scripts import ACQUIRE, ACQUIRE_FREE, RELEASE
from holdfast.errors import InvalidName

OWNER: Final = "holdfast_owner"
HOLDERS: Final = "holdfast_holders"
_BROKEN: Final = "holdfast_broken:"
_LOCK: Final = "holdfast_lock"
_CHANNEL: Final = "redisson_lock__channel"
_TOKEN: Final = "redisson_lock_token"
#: What the channels begin with on which releases push to waiters.
WAKE: Final = "holdfast_wake"
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
#: What comes before the owner in a request, and what follows it.
Direct = tuple[Opening, bytes]
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
        "_release_closings", "acquire", "acquire_free", "channel", "metadata", "name", "queue", "release", "releases",
        "token", "tombstones",
    )  # fmt: skip
    acquire: Opening  #: made when it is needed

    def __init__(self, name: str) -> None:
        self.name = name  #: hash: owner -> count
        self.token = prefixed(_TOKEN, name)  #: the fencing counter, Redisson's RFencedLock
        self.metadata = prefixed(OWNER, name)  #: token, time and description of the present grant; the lock's TTL
        self.queue = prefixed("holdfast_queue", name)  #: list of waiters
        self.tombstones = prefixed(_LOCK, name)  #: + ":gone:" + owner: a claim that must not come back
        self.channel = prefixed(_CHANNEL, name)  #: where a release is published
        free = (name, self.token, self.metadata, self.tombstones)
        self.acquire_free = Opening.of(ACQUIRE_FREE, free, arguments=4)
        self.release = Opening.of(RELEASE, (name, self.metadata, self.tombstones), arguments=4)
        self._release_closings: dict[str, Closing] = {}
        self.releases: dict[str, tuple[Direct, Direct]] = {}  #: what ``pack_releases`` has made

    # What a free lock does not need is made when it is needed: thousands of names are remembered.

    if not TYPE_CHECKING:  # else any attribute would be one

        def __getattr__(self, attribute: str) -> Opening:
            """Called where ``acquire`` is not there yet: it costs nothing once it is."""
            if attribute != "acquire":
                raise AttributeError(attribute)
            named = (self.name, self.token, self.metadata, self.queue, self.tombstones)
            self.acquire = Opening.of(ACQUIRE, named, arguments=7)
            return self.acquire

    @property
    def raise_(self) -> tuple[str, ...]:
        return (self.name, self.token, self.metadata)

    @property
    def join(self) -> tuple[str, ...]:
        return (self.name, self.token, self.metadata, self.tombstones)

    @property
    def inspect(self) -> tuple[str, ...]:
        return (self.name, self.token, self.metadata, self.queue)

    @property
    def timeouts(self) -> str:
        """Of a semaphore: the permits that are out."""
        return suffixed(self.name, "timeout")

    @property
    def redisson_queue(self) -> str:
        """Of Redisson's fair lock."""
        return prefixed("redisson_lock_queue", self.name)

    def release_closing(self, publish: Publish) -> Closing:
        """The end of a release request without a tombstone, packed once."""
        closing = self._release_closings.get(publish)
        if closing is None:
            closing = self._release_closings[publish] = Closing.of(self.channel, publish, 0)
        return closing

    def pack_releases(self, publish: Publish) -> tuple[Direct, Direct]:
        """A release without a tombstone that expects no waiter, and one that does: packed once."""
        rest = Closing.of(self.channel) if publish == "PUBLISH" else Closing.of(self.channel, publish)
        opening = Opening.of(RELEASE, tuple(self.release), arguments=1 + len(rest))
        awaited = (self.release, b"\r\n" + self.release_closing(publish).packed)
        packed = self.releases[publish] = ((opening, b"\r\n" + rest.packed), awaited)
        return packed

    def waiter(self, waiter: str) -> str:
        """The key that is there as long as ``waiter`` is. Scripts build it the same way, from the queue's key."""
        return f"{self.queue}:{waiter}"


def suffix_of(channel: str) -> str:
    """What keys beside the lock end with, of the lock that has this channel. Scripts do the same."""
    return channel[len(_CHANNEL) :]


def listeners_of(channel: str) -> str | None:
    """The key that is there while waiters of ours listen on this channel of a lock. None: another kind of channel."""
    prefix, _, rest = channel.partition(":")
    return f"{_LOCK}:{rest}:listeners" if prefix == _CHANNEL else None


@lru_cache(maxsize=4096)
def keys_of(name: str) -> Keys:
    """The keys of the lock ``name``."""
    return Keys(name)


def renewed(name: str) -> tuple[str, str, str]:
    """What a renewal of the lock ``name`` names: the lock, its metadata, its token.

    Without ``keys_of``: a client may hold many more locks than that remembers. All their keys would be made for each
    renewal.
    """
    beside = name if "{" in name else f"{{{name}}}"
    return name, f"{OWNER}:{beside}", f"{_TOKEN}:{beside}"


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
