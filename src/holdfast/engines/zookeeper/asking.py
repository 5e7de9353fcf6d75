"""Asking the servers and waiting for their answers, on one runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.failures import unconnected
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.reply import Reply
from holdfast.errors import EngineRefused, UsageError

#: Time-outs are whole milliseconds on the wire.
ROUNDING: Final = 0.002
#: How long a server may be silent at most before another one is asked.
_PATIENCE: Final = 2.0


class Asker:
    def __init__(self, hub: Hub, runtime: Runtime) -> None:
        self.hub = hub
        self.runtime = runtime

    def reply(self) -> Reply:
        """For the answer to a request that is sent next."""
        return Reply(self.runtime.event())

    async def arrival(self, last: Reply, timeout: float) -> float:
        """Wait for the last answer of a flight. Answers come in the order of the requests: so this is one wake-up for
        all of them. What is left of ``timeout``; if it did not come, those before it may have."""
        until = self.runtime.now() + timeout
        await last.wait(until)
        return max(0.0, until - self.runtime.now())

    async def answer(self, connection: Connection, reply: Reply, timeout: float) -> Any:
        """The answer to what was asked on ``connection``: see :meth:`Reply.answer`."""
        try:
            return await reply.answer(self.runtime.now() + timeout)
        except RequestFailed as failure:
            if failure.__cause__ is None:  # a time-out, and not a broken connection
                self._lose_patience(connection)
            raise

    def _lose_patience(self, connection: Connection) -> None:
        """Look for another server, if this one has fallen silent or lost its leader. The session lives on."""
        since = connection.pulse.unanswered_since()
        if since is not None and self.runtime.now() - since >= min(_PATIENCE, connection.negotiated / 4):
            connection.hang_up()

    # -- connections -----------------------------------------------------------------------------------------------

    async def connected(self, ttl: float | None, timeout: float) -> Connection:
        """The session for locks with this ttl, connected; the client's own for None."""
        connection = self.hub.connection(self.hub.ttl if ttl is None else ttl)
        await self.reconnected(connection, timeout)
        asked = self.hub.ttl if ttl is None else min(ttl, self.hub.ttl)
        # The ttl is rounded down to the session's time-out: a server that does not allow this may allow the ttl itself.
        if not connection.timeout - ROUNDING <= connection.negotiated <= asked + ROUNDING:
            self.hub.drop(connection)
            raise UsageError(
                f"the ZooKeeper servers do not allow sessions of {asked:g} s, but of {connection.negotiated:g} s; set "
                "ttl accordingly, or their minSessionTimeout and maxSessionTimeout"
            )
        return connection

    async def reconnected(self, connection: Connection, timeout: float) -> None:
        """Wait until it is connected, perhaps with another session than before."""
        until = self.runtime.now() + timeout
        while not connection.connected:
            await self._change_of(connection, until)

    async def _change_of(self, connection: Connection, until: float) -> None:
        changed = self.reply()
        try:
            self.hub.expect(changed.address)
            if connection.connected:
                return  # in the last moment
            if connection.refused:
                raise EngineRefused("ZooKeeper refused the connection; check the user name and password")
            if connection.over or connection.rejected or self.hub.closed or not await changed.wait(until):
                raise unconnected(connection.trouble, rejected=connection.rejected)
        finally:
            self.hub.expect_no_more(changed.address)

    async def until_over(self, connections: Sequence[Connection], until: float) -> bool:
        """Wait until their sessions have ended, and their threads."""
        while True:
            changed = self.reply()
            try:
                self.hub.expect(changed.address)
                if all(connection.over for connection in connections):
                    return True
                if not await changed.wait(until):
                    return False
            finally:
                self.hub.expect_no_more(changed.address)

    async def confirm(self, connection: Connection, reply: Reply, timeout: float) -> None:
        """Wait for the leader's word."""
        try:
            await self.answer(connection, reply, timeout)
        except NoNodeError:
            pass  # answered, all the same

    # -- what is asked ---------------------------------------------------------------------------------------------

    async def children(self, connection: Connection, path: str, timeout: float) -> Sequence[str]:
        """Those of a node; none, if it is not there."""
        listed = self.reply()
        connection.children(path, listed.address)
        try:
            return list(await self.answer(connection, listed, timeout))
        except NoNodeError:
            return ()
        except RequestFailed as failure:
            raise _harmless(failure) from failure.__cause__

    async def get(self, connection: Connection, path: str, timeout: float) -> tuple[bytes, Any]:
        """Data and stat; NoNodeError."""
        found = self.reply()
        connection.get(path, found.address)
        return await self.read(connection, found, timeout)

    async def read(self, connection: Connection, found: Reply, timeout: float) -> tuple[bytes, Any]:
        """The answer to a ``get`` that was sent already."""
        try:
            data, stat = await self.answer(connection, found, timeout)
        except RequestFailed as failure:
            raise _harmless(failure) from failure.__cause__
        return data, stat

    async def delete(self, connection: Connection, path: str, timeout: float) -> bool:
        """Whether it was there."""
        deleted = self.reply()
        connection.delete(path, deleted.address)
        try:
            await self.answer(connection, deleted, timeout)
        except NoNodeError:
            return False
        return True


def _harmless(failure: RequestFailed) -> RequestFailed:
    """The failure of a question that changes nothing, whether it was asked or not."""
    return RequestFailed(str(failure), may_have_happened=False)
