"""A watch on the contenders of a lock, also while it has no node: the servers remove that when it has no contenders."""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from holdfast.engines.zookeeper.connection import Connection, Receiver
from holdfast.engines.zookeeper.reply import Callbacks


def watch_contenders(connection: Connection, path: str, receiver: Receiver) -> None:
    """As ``Connection.watch_children``; without such a node its creation is watched."""

    def failed(error: BaseException) -> None:
        if isinstance(error, NoNodeError):
            connection.watch_existence(path, Callbacks(found, receiver.set_exception))
        else:
            receiver.set_exception(error)

    def found(stat: object) -> None:
        if stat is not None:
            connection.watches.fire(path)  # created in the meantime, and its children are not watched
        receiver.set()

    connection.watch_children(path, Callbacks(receiver.set, failed))
