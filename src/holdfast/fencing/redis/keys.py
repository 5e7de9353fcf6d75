"""The key of a resource's guard, in the same hash slot as the data. Pure."""

from __future__ import annotations

from typing import Final

from holdfast._config import names
from holdfast.engines.redis.dialect.keys import hash_tag
from holdfast.errors import InvalidName, UsageError

PREFIX: Final = "holdfast_fence:"

Key = str | bytes


def guard_key(resource: str) -> str:
    """The key of the guard: unique for each resource, and in its hash slot if a hash tag can express that."""
    tag = hash_tag(resource)
    # A tag ends at the first "}", so no tag leads to the slot of a resource that contains "}" but no tag.
    return f"{PREFIX}{resource}" if "}" in tag else f"{PREFIX}{{{tag}}}:{resource}"


def resource_of(keys: list[Key], resource: str | None) -> str:
    """The resource that the caller named, or the only data key. UsageError or InvalidName with the remedy."""
    for key in keys:
        if _text(key).startswith(PREFIX):
            raise InvalidName(f"keys that begin with {PREFIX!r} are guards, not data: use another key")
    if resource is not None:
        return names.validate(resource, what="resource name")
    if len(keys) != 1:
        raise UsageError(
            f"{len(keys)} keys and no resource: give them one common name, such as resource='{{orders}}', "
            "and use it wherever one of them is read or written"
        )
    key = keys[0]
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            raise UsageError("a key that is not UTF-8 cannot name its guard: give a resource=") from None
    return names.validate(key, what="resource name (here the data key; resource= gives another one)")


def validate_for_cluster(resource: str) -> None:
    """Refuse a resource whose guard would be in another slot."""
    if hash_tag(guard_key(resource)) != hash_tag(resource):
        raise InvalidName("in a cluster, braces in a resource name must be one hash tag such as {tag}", name=resource)


def _text(key: Key) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else key
