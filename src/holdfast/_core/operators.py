"""For operators: whether an engine serves, and the state of its locks. ``breaking`` takes one away."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from holdfast._config import names
from holdfast._core import retry
from holdfast._core.core import Core
from holdfast._core.hold import Hold
from holdfast.engines.base import Holder, LockState, RequestFailed

T = TypeVar("T")


async def inspect(core: Core, name: str) -> LockState:
    key = names.qualify(core.options.namespace, name)
    state = await ask(core, lambda timeout: core.session.inspect(key, timeout), name)
    return dataclasses.replace(state, name=name, holders=tuple(_as_known(core, key, each) for each in state.holders))


def _as_known(core: Core, key: str, holder: Holder) -> Holder:
    """With its present token, if this client holds the lock: the engine knows the first of the block only."""
    hold = core.queue.occupant(key)
    if isinstance(hold, Hold) and hold.token and hold.owner == holder.owner:  # else it is not granted yet
        return dataclasses.replace(holder, token=hold.token)
    return holder


async def locks(core: Core, prefix: str) -> AsyncIterator[LockState]:
    core.check_open()
    if prefix != "":  # a driver could not send a lone surrogate
        names.validate(prefix, what="prefix of lock names")
    start = names.qualify(core.options.namespace, prefix)
    try:
        async for key in core.session.names(start, core.options.request_timeout):
            name = names.unqualify(core.options.namespace, key)
            if name is not None and (state := await inspect(core, name)).holders:
                yield state
    except RequestFailed as failure:
        raise retry.unavailable(f"{core.engine!r} could not serve: {failure}", failure) from failure


async def ping(core: Core) -> None:
    await ask(core, core.session.ping, None)


async def ask(core: Core, question: Callable[[float], Awaitable[T]], name: str | None) -> T:
    """A question that may be repeated, until it is answered or the engine counts as unavailable."""
    core.check_open()
    options = core.options

    def give_up(failure: RequestFailed) -> Exception:
        message = f"{core.engine!r} could not serve for {options.unavailable_after:g} s: {failure}"
        return retry.unavailable(message, failure, name=name)

    limit = core.front.now() + options.unavailable_after
    return await retry.until_answered(
        core.front, lambda: question(options.request_timeout), limit, give_up, random.random
    )
