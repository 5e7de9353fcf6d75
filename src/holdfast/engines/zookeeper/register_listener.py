"""Waiting for a wake-up through a register: a watch on the waiter's node, or on the register itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from kazoo.exceptions import ConnectionLoss, NoNodeError

from holdfast.engines.zookeeper.connection import Connection, Receiver
from holdfast.engines.zookeeper.reply import Callbacks, OneShotEvent, ignore
from holdfast.engines.zookeeper.requests import Requester

#: How long the servers may take to set the first watch, in seconds.
ARM_WITHIN: Final = 5.0


class ZooKeeperListener:
    """See :class:`holdfast.engines.registers.RegisterListener`.

    A watch reports one change. The next watch is requested before ``wait`` returns, and a session's requests are
    executed in order: a change that no watch reports is seen by what the caller reads after ``wait``.
    """

    def __init__(
        self,
        requester: Requester,
        node: str,
        prepare: Callable[[], Awaitable[Connection]],
        watch: Callable[[Connection, str, Receiver], None] = Connection.watch,
    ) -> None:
        self._requester = requester
        self._node = node
        self._watch = watch  # sends the request that sets the watch
        self._prepare = prepare  # creates the node, if it must exist
        self._connection: Connection | None = None
        self._changed = OneShotEvent()
        self._watched = False
        self._wait_ended = False

    async def arm(self) -> None:
        connection = await self._prepare()
        self.close()
        self._connection = connection
        looked = self._requester.reply()
        self._add(connection)
        self._watch(connection, self._node, looked.receiver)
        try:
            await self._requester.answer(connection, looked, ARM_WITHIN)
        except NoNodeError:
            connection.watches.fire(self._node)  # removed again: the caller looks
        except BaseException:
            connection.watches.fire(self._node)  # it is unknown whether the watch is set
            raise

    def _add(self, connection: Connection) -> None:
        """For the request to watch the node that is sent next, also if the node is watched already: see above."""
        self._watched = True
        connection.watches.add(self._node, self._changed.set)

    async def wait(self, until: float) -> None:
        if not self._watched:
            self._watch_again()
        if not self._wait_ended:
            await self._changed.wait(self._requester.runtime, until)
        ended, self._wait_ended = self._wait_ended, False
        if self._changed.is_set and not ended:
            self._watch_again()

    def end_wait(self) -> None:
        self._wait_ended = True
        self._changed.end_wait()

    def _watch_again(self) -> None:
        if self._connection is None:
            return  # closed, or not armed
        self._changed = OneShotEvent()
        self._add(self._connection)
        failed = partial(self._unwatched, self._connection, self._changed)
        self._watch(self._connection, self._node, Callbacks(ignore, failed))

    def _unwatched(self, connection: Connection, changed: OneShotEvent, error: BaseException) -> None:
        """Called on the session's thread. If the node does not exist, the next ``wait`` tries again."""
        self._watched = False
        if not isinstance(error, ConnectionLoss):
            connection.watches.discard(self._node, changed.set)
        connection.watches.fire(self._node)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.watches.discard(self._node, self._changed.set)
        self._changed, self._watched = OneShotEvent(), False
