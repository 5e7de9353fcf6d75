"""WAIT at a master: list the connections that wait, and end their WAIT early. So no test waits long, and the answer
"too few" comes with time left to act on it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.servers.redis import RedisServer
from tests.servers.replication import slaves
from tests.support.waiting import until

_POLL: Final = 0.005


def in_wait(master: RedisServer) -> list[int]:
    """The ids of connections that wait for replicas."""
    clients: list[dict[str, str]] = master.ask("CLIENT LIST")
    return [int(client["id"]) for client in clients if client["cmd"] == "wait" and "b" in client["flags"]]


def end_waits(master: RedisServer) -> None:
    """Ends each WAIT as its timeout would: it returns how many replicas have acknowledged so far."""
    for client in in_wait(master):
        master.ask("CLIENT UNBLOCK", client, "TIMEOUT")


async def with_short_waits(call: asyncio.Future[Any], master: RedisServer, acknowledging: int = 0) -> Any:
    """The result of ``call``. Each WAIT ends as soon as ``acknowledging`` replicas have acknowledged."""
    while not call.done():
        if in_wait(master):
            written: int = master.ask("INFO", "replication")["master_repl_offset"]
            await until(lambda: acknowledged(master, written) >= acknowledging)  # noqa: B023  (awaited here)
            end_waits(master)
        await asyncio.sleep(_POLL)
    return await call


def acknowledged(master: RedisServer, offset: int) -> int:
    """How many replicas have acknowledged everything up to ``offset``."""
    return sum(int(replica["offset"]) >= offset for replica in slaves(master))
