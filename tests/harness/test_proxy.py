"""The fault proxy in front of a real Redis: each fault has the effect of its name, on the chosen request only."""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import hiredis
import pytest
import redis

from holdfast.engines.redis.scripts import Script
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.resp import ProtocolError
from tests.servers.redis import RedisServer
from tests.support.leaks import new_threads

SOON = 5.0  # a deadline for what must happen
NEVER = 0.1  # long enough to see a reply that must not come: loopback takes microseconds


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(redis_server.host, redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def direct(redis_server: RedisServer) -> redis.Redis:
    """A client that bypasses the proxy, to read the server's state."""
    return redis_server.client()


def pack(*words: str | int) -> bytes:
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub knows tuples of one
    return packed


class Wire:
    """A bare client: nothing is retried, reconnected or hidden."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.socket = socket.create_connection((proxy.host, proxy.port), SOON)
        self.reader = hiredis.Reader()

    def send(self, *words: str | int) -> None:
        self.socket.sendall(pack(*words))

    def receive(self, timeout: float = SOON) -> object:
        self.socket.settimeout(timeout)
        while (reply := self.reader.gets()) is False:
            data = self.socket.recv(4096)
            if not data:
                raise EOFError
            self.reader.feed(data)
        return reply

    def call(self, *words: str | int) -> object:
        self.send(*words)
        return self.receive()


@pytest.fixture
def connect(proxy: FaultProxy) -> Iterator[Callable[[], Wire]]:
    wires: list[Wire] = []

    def connect() -> Wire:
        wires.append(Wire(proxy))
        return wires[-1]

    yield connect
    for wire in wires:
        wire.socket.close()


@pytest.fixture
def wire(connect: Callable[[], Wire]) -> Wire:
    return connect()


# ---- no fault


@pytest.mark.parametrize("protocol", [2, 3])
def test_proxy_without_rules_passes_all_requests(proxy: FaultProxy, protocol: int) -> None:
    with redis.Redis.from_url(proxy.url, protocol=protocol, client_name="x") as client:
        client.set("key", b"\r\n" * 100_000)
        assert client.get("key") == b"\r\n" * 100_000
        with client.pipeline() as pipeline:
            assert pipeline.incr("n").incr("n").get("n").execute() == [1, 2, b"2"]
        with pytest.raises(redis.ResponseError):
            client.hget("key", "field")
    assert (b"INCRBY", b"n", b"1") in proxy.seen


def test_pipelined_requests_of_one_packet_are_matched_one_by_one(
    proxy: FaultProxy, wire: Wire, direct: redis.Redis
) -> None:
    lost = proxy.on("INCR", nth=2).drop_reply_and_reset()
    packet = b"".join(pack(*words) for words in [("INCR", "n"), ("PING",), ("INCR", "n"), ("PING",)])
    wire.socket.sendall(packet)
    assert [wire.receive(), wire.receive()] == [1, b"PONG"]
    with pytest.raises(ConnectionResetError):
        wire.receive()
    assert lost.hits == [(b"INCR", b"n")]
    assert direct.get("n") == b"2"


# ---- lost replies and requests


def test_drop_reply_and_reset_runs_the_request(proxy: FaultProxy, wire: Wire, direct: redis.Redis) -> None:
    rule = proxy.on("SET").drop_reply_and_reset()
    wire.send("SET", "key", "value")
    with pytest.raises(ConnectionResetError):
        wire.receive()
    assert rule.wait(SOON)
    assert direct.get("key") == b"value"


def test_a_fault_happens_once_unless_the_rule_repeats(proxy: FaultProxy, connect: Callable[[], Wire]) -> None:
    proxy.on("PING", nth=2).drop_reply_and_reset()
    first = connect()
    assert first.call("PING") == b"PONG"
    with pytest.raises(ConnectionResetError):
        first.call("PING")
    assert connect().call("PING") == b"PONG"
    every = proxy.on("PING", times=None).drop_reply_and_reset()
    for _ in range(3):
        with pytest.raises(ConnectionResetError):
            connect().call("PING")
    every.cancel()
    assert connect().call("PING") == b"PONG"
    assert len(every.hits) == 3


def test_black_hole_runs_the_request_and_passes_nothing_more(
    proxy: FaultProxy, wire: Wire, direct: redis.Redis
) -> None:
    rule = proxy.on("INCR").black_hole()
    wire.send("INCR", "n")
    assert rule.wait(SOON)
    assert direct.get("n") == b"1"
    wire.send("INCR", "n")  # the connection is open, but nothing passes
    with pytest.raises(TimeoutError):
        wire.receive(NEVER)
    assert direct.get("n") == b"1"
    assert proxy.connections == 1


def test_black_hole_hides_the_death_of_the_server(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with FaultProxy(server.host, server.port) as proxy:
        silent, other = Wire(proxy), Wire(proxy)
        with silent.socket, other.socket:
            rule = proxy.on("PING").black_hole()
            silent.send("PING")
            assert rule.wait(SOON)
            assert other.call("PING") == b"PONG"
            server.kill()
            with pytest.raises((EOFError, ConnectionResetError)):
                other.receive()
            with pytest.raises(TimeoutError):
                silent.receive(NEVER)


def test_drop_request_and_reset_does_not_run_the_request(proxy: FaultProxy, wire: Wire, direct: redis.Redis) -> None:
    rule = proxy.on("SET").drop_request_and_reset()
    wire.send("SET", "key", "value")
    with pytest.raises(ConnectionResetError):
        wire.receive()
    assert rule.fired
    assert direct.get("key") is None


def test_drop_request_black_hole_does_not_run_the_request(proxy: FaultProxy, wire: Wire, direct: redis.Redis) -> None:
    rule = proxy.on("SET").drop_request_black_hole()
    wire.send("SET", "key", "value")
    assert rule.wait(SOON)
    with pytest.raises(TimeoutError):
        wire.receive(NEVER)
    assert direct.get("key") is None


# ---- delays and duplicates


def test_reply_is_delayed_until_released(proxy: FaultProxy, wire: Wire, direct: redis.Redis) -> None:
    rule = proxy.on("SET").delay()
    wire.send("SET", "key", "value")
    assert rule.wait(SOON)
    assert direct.get("key") == b"value"
    with pytest.raises(TimeoutError):
        wire.receive(NEVER)
    rule.release()
    assert wire.receive() == b"OK"


def test_reply_is_delayed_for_the_given_time(proxy: FaultProxy, wire: Wire) -> None:
    proxy.on("PING").delay(0.05)
    started = time.monotonic()
    assert wire.call("PING") == b"PONG"
    assert time.monotonic() - started >= 0.05


def test_delayed_request_arrives_after_its_client_disconnected(
    proxy: FaultProxy, wire: Wire, direct: redis.Redis
) -> None:
    rule = proxy.on("RPUSH").delay(side="request")
    wire.send("RPUSH", "list", "late")
    assert rule.wait(SOON)
    wire.socket.close()
    assert direct.llen("list") == 0
    rule.release()
    assert direct.blpop(["list"], timeout=SOON) == (b"list", b"late")


def test_duplicate_is_sent_when_released(proxy: FaultProxy, wire: Wire, direct: redis.Redis) -> None:
    rule = proxy.on("INCR").duplicate()
    assert wire.call("INCR", "n") == 1
    assert rule.fired
    wire.socket.close()
    assert direct.get("n") == b"1"
    assert proxy.release_duplicates() == [b":2\r\n"]
    assert direct.get("n") == b"2"
    assert proxy.release_duplicates() == []


def test_duplicate_uses_the_same_user_and_database(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis(password="pw")
    with FaultProxy(server.host, server.port) as proxy:
        proxy.on("INCRBY").duplicate()
        with redis.Redis(port=proxy.port, password="pw", db=3, protocol=3) as client:
            assert client.incr("n") == 1
        assert proxy.release_duplicates() == [b":2\r\n"]
    with redis.Redis(port=server.port, password="pw", db=3) as client:
        assert client.get("n") == b"2"


# ---- pieces


def data_segments_received(connection: socket.socket) -> int:
    """The kernel's count (Linux, struct tcp_info), since the result of recv() depends on the scheduler."""
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("=I", information, 152)[0])


def test_slice_sends_single_bytes(proxy: FaultProxy, wire: Wire, direct: redis.Redis) -> None:
    direct.set("key", "value" * 100)
    assert wire.call("GET", "key") == b"value" * 100
    assert data_segments_received(wire.socket) == 1
    rule = proxy.on("GET").slice()
    assert wire.call("GET", "key") == b"value" * 100
    assert rule.fired
    assert data_segments_received(wire.socket) > 10  # not all: the congestion window may join some of them


# ---- connections


def test_refuse_affects_new_connections_until_accept(proxy: FaultProxy, connect: Callable[[], Wire]) -> None:
    before = connect()
    assert before.call("PING") == b"PONG"
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect()
    assert before.call("PING") == b"PONG"
    proxy.accept()
    assert connect().call("PING") == b"PONG"


def test_cut_all_resets_every_connection(proxy: FaultProxy, connect: Callable[[], Wire]) -> None:
    wires = [connect(), connect()]
    for wire in wires:
        wire.call("PING")
    assert proxy.cut_all() == 2
    for wire in wires:
        with pytest.raises(ConnectionResetError):
            wire.receive()
    assert connect().call("PING") == b"PONG"


def test_black_hole_all_holds_old_and_new_connections_until_heal(
    proxy: FaultProxy, connect: Callable[[], Wire], direct: redis.Redis
) -> None:
    old = connect()
    assert old.call("PING") == b"PONG"
    proxy.black_hole_all()
    new = connect()
    for wire in (old, new):
        wire.send("SET", "key", "value")
        with pytest.raises(TimeoutError):
            wire.receive(NEVER)
    assert direct.get("key") is None
    proxy.heal()
    assert connect().call("PING") == b"PONG"
    with pytest.raises(TimeoutError):
        old.receive(NEVER)


def test_dead_server_resets_the_connection(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with FaultProxy(server.host, server.port) as proxy:
        server.kill()
        # The proxy may disconnect before the PING, or before the client knows that it is connected.
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            call_once(proxy, "PING")


def call_once(proxy: FaultProxy, *words: str | int) -> object:
    wire = Wire(proxy)
    with wire.socket:
        return wire.call(*words)


# ---- matching requests


def test_rule_without_a_command_skips_the_handshake(proxy: FaultProxy) -> None:
    rule = proxy.on().drop_reply_and_reset()
    client = redis.Redis.from_url(proxy.url, protocol=3, client_name="x", db=2, retry=None)
    with client, pytest.raises(redis.ConnectionError):
        client.get("key")
    assert rule.hits == [(b"GET", b"key")]
    assert {request[0] for request in proxy.seen} > {b"HELLO", b"GET"}


def test_rule_that_names_a_handshake_command_matches_it(proxy: FaultProxy, wire: Wire) -> None:
    proxy.on("CLIENT").drop_request_and_reset()
    with pytest.raises(ConnectionResetError):
        wire.call("CLIENT", "ID")


def test_rule_matches_a_part_of_an_argument(proxy: FaultProxy, wire: Wire) -> None:
    rule = proxy.on(containing="order:42").notice()
    wire.call("GET", "order:41")
    assert not rule.fired
    wire.call("GET", "lock:{order:42}")
    assert rule.hits == [(b"GET", b"lock:{order:42}")]


SOURCE = "return redis.call('INCR', KEYS[1])"
SHA = hashlib.sha1(SOURCE.encode()).hexdigest()


@pytest.mark.parametrize("script", [SHA, SHA.upper(), Script("increment", SOURCE)])
def test_rule_matches_a_script(proxy: FaultProxy, connect: Callable[[], Wire], script: str | Script) -> None:
    rule = proxy.on(script=script, nth=2).drop_reply_and_reset()
    wire = connect()
    wire.call("EVAL", "return 1", 0)
    assert wire.call("EVAL", SOURCE, 1, "n") == 1
    with pytest.raises(ConnectionResetError):
        wire.call("EVALSHA", SHA, 1, "n")
    assert rule.hits == [(b"EVALSHA", SHA.encode(), b"1", b"n")]


def test_call_of_an_unknown_script_does_not_count(proxy: FaultProxy, wire: Wire, direct: redis.Redis) -> None:
    rule = proxy.on("EVALSHA").drop_reply_and_reset()
    assert isinstance(wire.call("EVALSHA", SHA, 1, "n"), hiredis.ReplyError)
    assert not rule.fired
    wire.call("SCRIPT", "LOAD", SOURCE)
    with pytest.raises(ConnectionResetError):
        wire.call("EVALSHA", SHA, 1, "n")
    assert direct.get("n") == b"1"


def test_notice_fires_before_the_reply(proxy: FaultProxy, wire: Wire) -> None:
    rule = proxy.on("BLPOP").notice()
    wire.send("BLPOP", "empty", 0)
    assert rule.wait(SOON)


def test_nth_and_times_count_from_one(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError):
        proxy.on(nth=0)
    with pytest.raises(ValueError):
        proxy.on(times=0)


# ---- pushed messages


def test_pushes_are_not_replies(proxy: FaultProxy, wire: Wire, direct: redis.Redis) -> None:
    wire.call("HELLO", 3)
    assert wire.call("CLIENT", "TRACKING", "ON") == b"OK"
    wire.call("GET", "key")
    rule = proxy.on("PING").drop_reply_and_reset()
    direct.set("key", "value")
    push = wire.receive()
    assert isinstance(push, list)
    assert push == [b"invalidate", [b"key"]]
    assert wire.call("ECHO", "x") == b"x"
    with pytest.raises(ConnectionResetError):
        wire.call("PING")
    assert rule.hits == [(b"PING",)]


@pytest.mark.parametrize("protocol", [2, 3])
def test_published_messages_are_not_replies(proxy: FaultProxy, wire: Wire, direct: redis.Redis, protocol: int) -> None:
    wire.call("HELLO", protocol)
    wire.send("SUBSCRIBE", "one", "two")
    assert [wire.receive(), wire.receive()] == [[b"subscribe", b"one", 1], [b"subscribe", b"two", 2]]
    direct.publish("one", "news")
    assert wire.receive() == [b"message", b"one", b"news"]
    rule = proxy.on("UNSUBSCRIBE").drop_reply_and_reset()
    assert wire.call("PING") in (b"PONG", [b"pong", b""])
    with pytest.raises(ConnectionResetError):
        wire.call("UNSUBSCRIBE", "one")
    assert rule.fired


# ---- the proxy itself


def test_peer_with_another_protocol_is_disconnected_and_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:
        proxy = FaultProxy(*web.getsockname()).start()
        wire = Wire(proxy)
        with wire.socket:
            wire.send("PING")
            peer, _ = web.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                with pytest.raises(ConnectionResetError):
                    wire.receive()
    with pytest.raises(ProtocolError):
        proxy.close()


def test_closed_proxy_leaves_no_sockets_threads_or_tasks(redis_server: RedisServer) -> None:
    before = set(threading.enumerate())
    with FaultProxy(redis_server.host, redis_server.port) as proxy:
        wire = Wire(proxy)
        held = proxy.on("PING").delay()
        wire.send("PING")
        assert held.wait(SOON)  # closing must not wait for the release
    wire.socket.close()
    assert not new_threads(before)
    with pytest.raises(RuntimeError, match="not running"):
        proxy.refuse()
    proxy.close()  # twice is fine
