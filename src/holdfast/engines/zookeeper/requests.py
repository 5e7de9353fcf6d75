"""Sending requests to the servers and waiting for their answers, on one runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kazoo.exceptions import NoNodeError

from holdfast._runtime.base import Runtime
from holdfast.engines.base import RequestFailed
from holdfast.engines.zookeeper.connection import Connection
from holdfast.engines.zookeeper.failures import ANSWERS, explained, failed_operation, unconnected
from holdfast.engines.zookeeper.hub import Hub
from holdfast.engines.zookeeper.reply import Reply
from holdfast.errors import EngineRefused, UsageError

#: Timeouts are whole milliseconds on the wire.
ROUNDING: Final = 0.002
#: A server that does not answer for this long (in seconds) is replaced by another one.
_LONGEST_SILENCE: Final = 2.0


class Requester:
    def __init__(self, hub: Hub, runtime: Runtime) -> None:
        self.hub = hub
        self.runtime = runtime

    def reply(self) -> Reply:
        """The future answer to the next request."""
        return Reply(self.runtime.event())

    async def wait_for_last(self, last: Reply, timeout: float) -> float:
        """Wait for the last answer of a pipelined group of requests. Answers arrive in the order of the requests, so
        this is one wake-up for all of them. Returns what is left of ``timeout``. If the last answer did not arrive,
        earlier ones may have."""
        until = self.runtime.now() + timeout
        await last.wait(until)
        return max(0.0, until - self.runtime.now())

    async def answer(self, connection: Connection, reply: Reply, timeout: float) -> Any:
        """The answer to a request on ``connection``: see :meth:`Reply.answer`."""
        try:
            return await reply.answer(self.runtime.now() + timeout)
        except RequestFailed as failure:
            if failure.__cause__ is None:  # a timeout, and not a broken connection
                self._reconnect_if_silent(connection)
            raise

    def _reconnect_if_silent(self, connection: Connection) -> None:
        """Connect to another server if this one does not answer or has lost its leader. The session continues."""
        since = connection.heartbeat.unanswered_since()
        if since is not None and self.runtime.now() - since >= min(_LONGEST_SILENCE, connection.negotiated / 4):
            connection.break_connection()

    # -- connections -----------------------------------------------------------------------------------------------

    async def connected(self, ttl: float | None, timeout: float) -> Connection:
        """A connected session for locks with this ttl; the client's own session for None."""
        connection = self.hub.connection(self.hub.ttl if ttl is None else ttl)
        await self.reconnected(connection, timeout)
        asked = self.hub.ttl if ttl is None else min(ttl, self.hub.ttl)
        # The session's timeout is the ttl rounded down. A server that refuses that value may still allow the ttl.
        if not connection.timeout - ROUNDING <= connection.negotiated <= asked + ROUNDING:
            self.hub.drop(connection)
            raise UsageError(
                f"the ZooKeeper servers do not allow sessions of {asked:g} s, but of {connection.negotiated:g} s; set "
                "ttl accordingly, or their minSessionTimeout and maxSessionTimeout"
            )
        return connection

    async def reconnected(self, connection: Connection, timeout: float) -> None:
        """Wait until ``connection`` is connected, possibly with a new session."""
        until = self.runtime.now() + timeout
        while not connection.connected:
            await self._change_of(connection, until)

    async def _change_of(self, connection: Connection, until: float) -> None:
        changed = self.reply()
        try:
            self.hub.expect(changed.receiver)
            if connection.connected:
                return  # connected in the meantime
            if connection.refused:
                raise EngineRefused("ZooKeeper refused the connection; check the user name and password")
            if connection.ended or connection.rejected or self.hub.closed or not await changed.wait(until):
                raise unconnected(connection.last_error, rejected=connection.rejected)
        finally:
            self.hub.expect_no_more(changed.receiver)

    async def wait_until_ended(self, connections: Sequence[Connection], until: float) -> bool:
        """Wait until their sessions and threads have ended. False if ``until`` passes first."""
        while True:
            changed = self.reply()
            try:
                self.hub.expect(changed.receiver)
                if all(connection.ended for connection in connections):
                    return True
                if not await changed.wait(until):
                    return False
            finally:
                self.hub.expect_no_more(changed.receiver)

    async def confirm(self, connection: Connection, reply: Reply, timeout: float) -> None:
        """Wait for the leader's answer."""
        try:
            await self.answer(connection, reply, timeout)
        except NoNodeError:
            pass  # an answer too

    # -- requests --------------------------------------------------------------------------------------------------

    async def children(self, connection: Connection, path: str, timeout: float) -> Sequence[str]:
        """The children of a node; empty if the node does not exist."""
        listed = self.reply()
        connection.children(path, listed.receiver)
        try:
            return list(await self.answer(connection, listed, timeout))
        except NoNodeError:
            return ()
        except RequestFailed as failure:
            raise _harmless(failure) from failure.__cause__

    async def get(self, connection: Connection, path: str, timeout: float) -> tuple[bytes, Any]:
        """Data and stat of a node. Raises NoNodeError."""
        found = self.reply()
        connection.get(path, found.receiver)
        return await self.read(connection, found, timeout)

    async def read(self, connection: Connection, found: Reply, timeout: float) -> tuple[bytes, Any]:
        """The answer to a ``get`` that has been sent."""
        try:
            data, stat = await self.answer(connection, found, timeout)
        except RequestFailed as failure:
            raise _harmless(failure) from failure.__cause__
        return data, stat

    async def delete(self, connection: Connection, path: str, timeout: float) -> bool:
        """Delete a node. False if it did not exist."""
        deleted = self.reply()
        connection.delete(path, deleted.receiver)
        try:
            await self.answer(connection, deleted, timeout)
        except NoNodeError:
            return False
        return True

    async def delete_all(self, connection: Connection, paths: Sequence[str], timeout: float) -> int:
        """Delete nodes, by pipelined requests. How many of them existed."""
        replies = [self.reply() for _ in paths]
        for path, deleted in zip(paths, replies, strict=True):
            connection.delete(path, deleted.receiver)
        left, found = await self.wait_for_last(replies[-1], timeout), 0
        for deleted in replies:
            try:
                await self.answer(connection, deleted, left)
                found += 1
            except NoNodeError:
                pass
        return found

    async def outcome(self, connection: Connection, reply: Reply, timeout: float) -> tuple[int, Exception] | None:
        """The answer to a ``multi``: None if it took effect. Else nothing did: which operation was refused, and whether
        its node does not exist, exists, or has another version. Raises anything else."""
        refused = failed_operation(await self.answer(connection, reply, timeout))
        if refused is not None and not isinstance(refused[1], ANSWERS):
            raise explained(refused[1]) from refused[1]
        return refused


def _harmless(failure: RequestFailed) -> RequestFailed:
    """The failure of a read: it changes nothing, whether or not it arrived."""
    return RequestFailed(str(failure), may_have_happened=False)
