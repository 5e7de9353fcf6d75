"""What semaphores need beside claims: how many permits are asked for, and how many there are."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast._core import operators
from holdfast._core.policy import Policy
from holdfast.engines.base import permits
from holdfast.engines.optional_sessions import SemaphoreSession
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._core.core import Core
    from holdfast._core.hold import Hold

_log: Final = logging.getLogger("holdfast.settings")


def check_permits(number: int, name: str) -> int:
    """A number of permits, or the error that says what is wrong with it."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"semaphore {name!r}: permits are a whole number, not a {type(number).__name__}")
    if number < 1:
        raise UsageError(f"semaphore {name!r}: the number of permits is at least 1, not {number}", name=name)
    return number


def for_permits(policy: Policy, number: int) -> Policy:
    """``policy``, which is for one permit, for ``number`` of them."""
    if number == 1 and number is not True:
        return policy
    mode = permits(check_permits(number, policy.name), policy.mode.size)
    return dataclasses.replace(policy, mode=mode)


def compare_size(core: Core, hold: Hold) -> None:
    """Log once, for each name of a client, that the semaphore has another size than its user expects."""
    found, expected, name = hold.grant.size, hold.policy.mode.size, hold.policy.name
    if found in (0, expected) or hold.policy.key in core.sizes_compared:
        return
    core.sizes_compared.add(hold.policy.key)
    _log.warning(
        "semaphore %r has %d permits, not %d: the number given counts only when it is created; resize() changes it",
        name,
        found,
        expected,
    )


async def resize(core: Core, policy: Policy, size: int) -> None:
    check_permits(size, policy.name)
    session, request = cast("SemaphoreSession[Any]", core.session), str(uuid.uuid4())
    await operators.ask(core, lambda timeout: session.resize(policy.key, size, timeout, request), policy.name)
