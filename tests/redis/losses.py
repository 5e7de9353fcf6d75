"""Ways to lose one request, or one reply, of a script; and what no loss may leave behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.testing.proxy import FaultProxy
from tests.servers.redis import RedisServer

Arm = Callable[[FaultProxy, object], object]


def reply_lost_by_reset(proxy: FaultProxy, script: object) -> object:
    return proxy.on(script=script).drop_reply_and_reset()  # type: ignore[arg-type]


def reply_lost_in_a_black_hole(proxy: FaultProxy, script: object) -> object:
    return proxy.on(script=script).black_hole()  # type: ignore[arg-type]


def request_lost_by_reset(proxy: FaultProxy, script: object) -> object:
    return proxy.on(script=script).drop_request_and_reset()  # type: ignore[arg-type]


def request_lost_in_a_black_hole(proxy: FaultProxy, script: object) -> object:
    return proxy.on(script=script).drop_request_black_hole()  # type: ignore[arg-type]


LOSSES = [reply_lost_by_reset, reply_lost_in_a_black_hole, request_lost_by_reset, request_lost_in_a_black_hole]
every_loss = pytest.mark.parametrize("lose", LOSSES)


def only_keys_with_ttl(server: RedisServer) -> bool:
    client = server.client()
    return all(client.pttl(key) != -1 for key in client.scan_iter())
