"""Several servers asked in parallel from one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hiredis import ReplyError

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.connections.aio import AsyncioChannel
from holdfast.engines.redis.dialect.replies import Answer, is_unknown_script
from holdfast.engines.redis.dialect.requests import Call
from holdfast.errors import EngineRefused


class AsyncioGroup:
    """See :class:`~holdfast.engines.redis.connections.group.ServerGroup`. Has no state."""

    async def ask(self, channels: Sequence[AsyncioChannel], call: Call, timeout: float) -> list[Answer]:
        # Written immediately where there is a connection; only the others need a task each.
        sent: list[asyncio.Future[Any]] = [
            channel.post(call.packed, timeout) or asyncio.ensure_future(_run(channel, call, timeout))
            for channel in channels
        ]
        try:
            return [
                await _answer(channel, future, call, timeout) for channel, future in zip(channels, sent, strict=True)
            ]
        except BaseException:
            _give_up(sent)
            raise


def _give_up(sent: Sequence[asyncio.Future[Any]]) -> None:
    """The caller was cancelled, or its loop was closed meanwhile: then nothing can be cancelled any more."""
    for future in sent:
        if future.done():
            if not future.cancelled():
                future.exception()  # retrieved: else asyncio would complain
        elif not future.get_loop().is_closed():
            future.cancel()


async def _answer(channel: AsyncioChannel, future: asyncio.Future[Any], call: Call, timeout: float) -> Answer:
    try:
        reply = await future
        if is_unknown_script(reply):
            return await _run(channel, call, timeout)
        return channel.checked(reply) if reply.__class__ is ReplyError else reply
    except (RequestFailed, EngineRefused) as failure:
        return failure


async def _run(channel: AsyncioChannel, call: Call, timeout: float) -> Answer:
    try:
        return await channel.run(call, timeout)
    except (RequestFailed, EngineRefused) as failure:
        return failure
