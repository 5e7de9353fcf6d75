"""The environment of the command: the runner's own, and five variables about the lock.

``HOLDFAST_HELD`` lists the locks that the command's ancestors hold: words of the form ``fingerprint:name``, the name
percent-encoded. The fingerprint is a hash of the engine's address, which has no secret in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.lease import Lease

HELD: Final = "HOLDFAST_HELD"
_FINGERPRINT: Final = 16
#: What Python sets LC_CTYPE to, for itself and its children, where the locale is C (PEP 538).
_COERCED: Final = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})


def original() -> dict[str, str]:
    """The environment that this process was started with.

    Without a variable that has no name (``=x``): Python refuses to pass it on, and shells drop it too.
    """
    environment = {name: value for name, value in os.environ.items() if name}
    if environment.get("LC_CTYPE") in _COERCED:
        try:
            with open("/proc/self/environ", "rb") as file:
                given = file.read().split(b"\0")
        except OSError:
            return environment
        if not any(variable.startswith(b"LC_CTYPE=") for variable in given):
            del environment["LC_CTYPE"]
    return environment


def mark(client: Client, name: str) -> str:
    """The word for ``name`` in HOLDFAST_HELD."""
    import hashlib

    from holdfast._config.names import qualify

    engine = hashlib.sha256(repr(client._engine).encode("utf-8", "surrogateescape")).hexdigest()[:_FINGERPRINT]
    return f"{engine}:{quote(qualify(client._options.namespace, name), safe='')}"


def held_by_ancestor(environment: Mapping[str, str], marked: str) -> bool:
    """Whether an ancestor holds the lock, so that waiting for it would be a deadlock.

    Not recognized: the same engine under another address.
    """
    return marked in environment.get(HELD, "").split()


def additions(environment: Mapping[str, str], lease: Lease, marked: str) -> dict[str, str]:
    """The variables that the command gets in addition."""
    return {
        "HOLDFAST_NAME": lease.name,
        "HOLDFAST_TOKEN": str(lease.token),
        "HOLDFAST_OWNER": lease.owner,
        "HOLDFAST_MODE": lease.mode,
        HELD: " ".join([*environment.get(HELD, "").split(), marked]),
    }


def liveness(lease: Lease) -> int | None:
    """The descriptor that keeps this process's locks held after its death, if the engine has one (SQLite).

    The command and its descendants inherit it, as with flock(1). The lock still expires after its ttl.
    """
    fileno = getattr(lease._hold.core.session, "liveness_fileno", None)
    return None if fileno is None else int(fileno())
