"""What operators ask of an engine: does it serve, who holds what, take a lock away."""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from holdfast._core import backoff, names, unavailable
from holdfast._core.core import Core
from holdfast.engines.base import LockState, RequestFailed
from holdfast.errors import OutcomeUnknown

T = TypeVar("T")
_log: Final = logging.getLogger("holdfast.operator")


async def inspect(core: Core, name: str) -> LockState:
    key = names.qualify(core.options.namespace, name)
    state = await _ask(core, lambda timeout: core.session.inspect(key, timeout), name)
    return dataclasses.replace(state, name=name)


async def locks(core: Core, prefix: str) -> AsyncIterator[LockState]:
    core.check_open()
    start = names.qualify(core.options.namespace, prefix)
    try:
        async for key in core.session.names(start, core.options.request_timeout):
            name = names.unqualify(core.options.namespace, key)
            if name is not None and (state := await inspect(core, name)).holders:
                yield state
    except RequestFailed as failure:
        raise unavailable.error(f"{core.engine!r} could not serve: {failure}", failure) from failure


async def break_(core: Core, name: str) -> bool:
    key = names.qualify(core.options.namespace, name)
    own = core.grants_on(key)  # whatever of it is still held when the answer comes was broken, or lost before

    async def once(timeout: float) -> bool:
        try:
            return await core.session.break_(key, timeout)
        except RequestFailed as failure:
            if not failure.may_have_happened:
                raise
            core.suspect(key)
            # Asked again, it would take the lock from the next holder too.
            raise OutcomeUnknown(
                f"lock {name!r}: no answer came, so it is unknown whether it was broken; inspect() tells who holds it",
                operation="break_",
                name=name,
            ) from failure

    held = await _ask(core, once, name)
    if held:
        core.broken(own)
    else:
        core.suspect(key)  # free: should this client believe to hold it, that is checked
    if core.reports is not None:
        core.reports.broken(name, held)
    _log.warning("lock %r was broken by force%s", name, "" if held else "; nobody held it")
    return held


async def ping(core: Core) -> None:
    await _ask(core, core.session.ping, None)


async def _ask(core: Core, ask: Callable[[float], Awaitable[T]], name: str | None) -> T:
    """A question that may be repeated, until it is answered or the engine counts as unavailable."""
    core.check_open()
    front, options = core.front, core.options
    since = front.now()
    failures = 0
    while True:
        try:
            return await ask(options.request_timeout)
        except RequestFailed as failure:
            failures += 1
            if front.now() - since >= options.unavailable_after:
                raise unavailable.error(
                    f"{core.engine!r} could not serve for {options.unavailable_after:g} s: {failure}",
                    failure,
                    name=name,
                ) from failure
            await front.sleep_until(front.now() + backoff.pause(failures, random.random))
