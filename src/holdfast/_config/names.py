"""Lock names: which texts are valid, and how a namespace is prepended. Pure; engines may refuse more."""

from __future__ import annotations

from typing import Final

from holdfast.errors import InvalidName

#: Longest name in UTF-8 bytes: short enough for every engine's key and path limits once prefixes are added.
MAX_BYTES: Final = 512


def validate(name: object, *, what: str = "lock name") -> str:
    """Return ``name`` if it is a str of 1 to 512 UTF-8 bytes, else raise InvalidName with the remedy.

    An engine may refuse more: see ``Engine.validate_name``.
    """
    if not isinstance(name, str):
        raise InvalidName(f"a {what} is a str, not {type(name).__name__}; {_remedy(name)}")
    if not name:
        raise InvalidName(f"a {what} may not be empty: every user of an empty name would share one lock", name=name)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form: drivers would fail late, or replace it, which makes two names equal.
        # The name is not kept as an attribute either: logging it would fail in the same way.
        raise InvalidName(
            f"a {what} must be encodable as UTF-8, and this one contains a lone surrogate (often from os.fsdecode); "
            "decode the bytes properly or use their hex form"
        ) from None
    if size > MAX_BYTES:
        raise InvalidName(
            f"a {what} may have at most {MAX_BYTES} UTF-8 bytes, this one has {size}; "
            "use a shorter key, or a digest of the long one",
            name=name,
        )
    return name


def _remedy(value: object) -> str:
    """How to make a name of ``value``. ``str()`` would make "b'x'" of bytes, and of most objects a text that differs
    between processes: such a lock excludes no other process."""
    if isinstance(value, (bytes, bytearray)):
        return "use its .decode()"
    if isinstance(value, int) and not isinstance(value, bool):
        return "use str()"
    return "give a text that is the same in every process"


def qualify(namespace: str, name: str) -> str:
    """The engine's name: ``namespace:name``, or ``name`` without a namespace."""
    return f"{namespace}:{name}" if namespace else name


def unqualify(namespace: str, qualified: str) -> str | None:
    """The user's name for an engine's name; None if it lies outside ``namespace``."""
    if not namespace:
        return qualified
    prefix = f"{namespace}:"
    return qualified[len(prefix) :] if qualified.startswith(prefix) and len(qualified) > len(prefix) else None
