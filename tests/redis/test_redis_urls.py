"""URLs of several servers: the targets of the engines, and which URLs are refused before a server is contacted."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from hypothesis import given
from hypothesis import strategies as st
from redis.cluster import RedisCluster
from redis.connection import parse_url as _untyped_parse_url

from holdfast._config.options import ClientOptions
from holdfast._config.targets import Target, parse_target
from holdfast.engines import registry
from holdfast.engines.redis.url import SentinelTarget
from holdfast.errors import UsageError

parse_url: Callable[[str], dict[str, Any]] = _untyped_parse_url  # the driver's own parser

SEVERAL = ["redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "redlock", "redlocks"]


def a_url(scheme: str, hosts: str, query: str = "") -> str:
    return f"{scheme}://{hosts}" + ("/m" if "sentinel" in scheme else "") + (f"?{query}" if query else "")


def urls_of(target: Any) -> tuple[str, ...]:
    return (target.url,) if isinstance(target, SentinelTarget) else target


# ---- targets


@pytest.mark.parametrize(
    "url, target",
    [
        ("redis+sentinel://h/m", SentinelTarget("m", (("h", 26379),), "redis://h:26379")),
        (
            "redis+sentinel://joe:p%2Fw@h1:1,H2/my-master/3?client_name=n%26m&ttl=5",
            SentinelTarget("my-master", (("h1", 1), ("h2", 26379)), "redis://joe:p%2Fw@h1:1/3?client_name=n%26m"),
        ),
        (
            "rediss+sentinel://[::1],[fe80::1%25eth0]:7/a%2Fb/?db=2",
            SentinelTarget("a/b", (("::1", 26379), ("fe80::1%eth0", 7)), "rediss://[::1]:26379?db=2"),
        ),
        ("redis+sentinel://h/0/0", SentinelTarget("0", (("h", 26379),), "redis://h:26379/0")),
    ],
)
def test_sentinel_url_gives_a_sentinel_target(url: str, target: SentinelTarget) -> None:
    found = parse_target(url, {})
    assert (found.engine, found.target, found.engine_options) == ("sentinel", target, {})
    assert type(found.target) is SentinelTarget


@pytest.mark.parametrize(
    "url, engine, target",
    [
        ("redis+cluster://h1:7000,h2:7001", "cluster", ("redis://h1:7000", "redis://h2:7001")),
        ("redis+cluster://h/", "cluster", ("redis://h:6379",)),
        ("redis+cluster://h/0?db=0", "cluster", ("redis://h:6379/0?db=0",)),
        ("rediss+cluster://u:p@h1,[::1]:7", "cluster", ("rediss://u:p@h1:6379", "rediss://u:p@[::1]:7")),
        ("redlock://h1,h2:1,h3", "redlock", ("redis://h1:6379", "redis://h2:1", "redis://h3:6379")),
        ("redlock://h", "redlock", ("redis://h:6379",)),
        ("redlock://h:1,h:2/4?replicas=1", "redlock", ("redis://h:1/4", "redis://h:2/4")),
        (
            "redlocks://:p%40w@h1,h2?ssl_ca_certs=/ca.pem&max_connections=3",
            "redlock",
            ("rediss://:p%40w@h1:6379?ssl_ca_certs=/ca.pem", "rediss://:p%40w@h2:6379?ssl_ca_certs=/ca.pem"),
        ),
    ],
)
def test_cluster_and_redlock_urls_give_one_url_for_each_host(url: str, engine: str, target: tuple[str, ...]) -> None:
    found = parse_target(url, {})
    assert (found.engine, found.target, found.engine_options) == (engine, target, {})


def test_own_options_are_the_same_for_every_url() -> None:
    assert parse_target("redlock://h1,h2?ttl=5m&namespace=a", {"renew": False}).options == ClientOptions(
        300, "a", False
    )


names_of_hosts = st.from_regex(r"[a-z0-9_]([a-z0-9._-]{0,20}[a-z0-9])?", fullmatch=True)
hosts = st.one_of(names_of_hosts, st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str))
servers = st.lists(st.tuples(hosts, st.none() | st.integers(1, 65535)), min_size=1, max_size=5)


@given(st.sampled_from(SEVERAL), servers)
def test_driver_parses_the_written_hosts(scheme: str, written: list[tuple[str, int | None]]) -> None:
    default = 26379 if "sentinel" in scheme else 6379
    expected = [(host, default if port is None else port) for host, port in written]
    bracketed = [(f"[{host}]" if ":" in host else host, port) for host, port in written]
    url = a_url(scheme, ",".join(host if port is None else f"{host}:{port}" for host, port in bracketed))
    if scheme.startswith("redlock") and len(set(expected)) < len(expected):
        with pytest.raises(UsageError, match="same"):
            parse_target(url, {})
        return
    target = parse_target(url, {}).target
    read = [parse_url(one) for one in urls_of(target)]
    addresses = [(one["host"], one["port"]) for one in read]
    assert addresses == (expected[:1] if isinstance(target, SentinelTarget) else expected)
    assert not isinstance(target, SentinelTarget) or list(target.sentinels) == expected
    by_tls = scheme in ("rediss+sentinel", "rediss+cluster", "redlocks")
    assert all(("connection_class" in one) == by_tls for one in read)


@given(st.sampled_from(SEVERAL), st.text(min_size=1), st.text(min_size=1))
def test_user_info_is_the_same_for_all_hosts(scheme: str, user: str, password: str) -> None:
    user, password = (text.encode("utf-8", "replace").decode() for text in (user, password))
    encoded = ":".join("".join(f"%{byte:02X}" for byte in text.encode()) for text in (user, password))
    for url in urls_of(parse_target(a_url(scheme, f"{encoded}@h1,h2"), {}).target):
        read = parse_url(url)
        assert (read["username"], read["password"]) == (user, password)


# ---- options of one engine


def test_sentinel_credentials_are_passed_to_the_engine_and_removed_from_the_url() -> None:
    url = "redis+sentinel://joe:pw@h/m?sentinel_username=ann&sentinel_password=s3cr3t"
    found = parse_target(url, {"sentinel_username": "ann", "client_name": "x"})
    assert found.engine_options == {"sentinel_username": "ann", "sentinel_password": "s3cr3t", "client_name": "x"}
    assert found.target.url == "redis://joe:pw@h:26379"
    assert "s3cr3t" not in repr(found)
    with pytest.raises(UsageError, match="sentinel_password is given as a keyword and, differently") as caught:
        parse_target(url, {"sentinel_password": "S3cr3t"})
    assert "s3cr3t" not in str(caught.value).lower()


@pytest.mark.parametrize("mode", ["auto", "on", "off", "both"])
def test_sharded_pubsub_is_read_from_url_and_keyword(mode: str) -> None:
    by_url = parse_target(f"redis+cluster://h?sharded_pubsub={mode.upper()}", {"sharded_pubsub": mode})
    assert by_url.engine_options == {"sharded_pubsub": mode}
    assert by_url.target == ("redis://h:6379",)
    assert parse_target("redis+cluster://h", {"sharded_pubsub": mode}).engine_options == {"sharded_pubsub": mode}


@pytest.mark.parametrize(
    "value, error", [("maybe", ValueError), ("", ValueError), (True, TypeError), (None, TypeError)]
)
def test_wrong_value_of_sharded_pubsub_is_refused(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="auto, on, off, both"):
        parse_target("redis+cluster://h", {"sharded_pubsub": value})


@pytest.mark.parametrize("engine", ["redis", "sentinel", "cluster", "redlock", "zookeeper", "sqlite", "memory"])
def test_factory_gets_target_and_options(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, dict[str, Any]]] = []
    module = SimpleNamespace(connect=lambda target, options: made.append((target, options)))
    monkeypatch.setitem(sys.modules, registry.NAMES[engine].factory, module)
    registry.make_engine(Target(engine, "x", ClientOptions(replicas=2), {"a": 1}))
    more: dict[str, float] = {} if engine in ("sqlite", "memory") else {"replicas": 2}
    if engine == "zookeeper":
        more = {"ttl": 30.0}  # the timeout of its session
    assert made == [("x", {"a": 1, "token_ttl": 30 * 86400.0, **more})]


def test_missing_driver_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.engines.zookeeper", raising=False)
    for name in [name for name in sys.modules if name.startswith("holdfast.engines.zookeeper.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith("kazoo.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"pip install 'holdfast-locks\[zookeeper\]'"):
        registry.make_engine(parse_target("zookeeper://h", {}))


# ---- refused


@pytest.mark.parametrize("scheme", SEVERAL)
@pytest.mark.parametrize(
    "hosts, message",
    [
        ("", "names no host; write {scheme}://"),
        ("u:p@", "names no host"),
        ("h1,,h2", "host 2 of 3"),
        ("h1,h2,", "host 3 of 3"),
        (",h1", "host 1 of 2"),
        ("h1,:7000", "host 2 of 2"),
        ("h1, h2", "white space"),
        ("h1,h2:65536", "1 to 65535"),
        ("h1,h2:0", "1 to 65535"),
        ("h1,h2:-1", "1 to 65535"),
        ("h1,h2:port", "1 to 65535"),
        ("h1,::1", "brackets"),
        ("h1,[::1", "brackets"),
        ("h1,[::1]x:5", "brackets"),
        ("h1,x[::1]:5", "brackets"),
        ("h1,[h2]:5", "brackets"),
        ("joe:pw@h1,joe:pw@h2", "user info stands once"),
        ("h1,joe:pw@h2", "user info stands once"),
    ],
)
def test_wrong_hosts_are_refused_with_a_remedy(scheme: str, hosts: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(a_url(scheme, hosts), {})
    assert message.format(scheme=scheme) in str(caught.value)


@pytest.mark.parametrize("scheme", ["redlock", "redlocks"])
@pytest.mark.parametrize("hosts", ["h1,h2,h1", "h1,h2,H1:6379", "[::1]:5,h2,[::1]:5", "h1:6379,h2,h%31", "h1,h2,%481"])
def test_duplicate_redlock_node_is_refused(scheme: str, hosts: str) -> None:
    with pytest.raises(UsageError, match="nodes 1 and 3 of the URL are the same"):
        parse_target(f"{scheme}://{hosts}", {})


@pytest.mark.parametrize(
    "url, message",
    [
        ("redis+sentinel://h1,h2", "name the master"),
        ("redis+sentinel://h1,h2/", "…/MASTER/0"),
        ("redis+sentinel://h1,h2?db=0", "name the master"),
        ("rediss+sentinel://h1,h2/0", "missing before the database; write rediss+sentinel://"),
        ("redis+sentinel://h/a/b/0", "MASTER or MASTER/DB, in which '/' is %2F"),
        ("redis+sentinel://h/a//0", "MASTER or MASTER/DB"),
        ("redis+sentinel://h/a:b", "MASTER or MASTER/DB"),
        ("redis+sentinel://h/a%0Ab", "MASTER or MASTER/DB"),
        ("redis+sentinel://h/m/zero", "database number"),
        ("redis+sentinel://h/m/1?db=2", "twice"),
        ("redis+sentinel://h/m?db=zero", "database number"),
        ("redis+sentinel://h/m?sentinel_pasword=x", "'sentinel_password'"),
        ("redis+sentinel://h/m?sentinel_username=x", "without sentinel_password"),
        ("redis+sentinel://h/m?sharded_pubsub=on", "redis+cluster:// only"),
        ("redis+cluster://h/1", "only database 0"),
        ("redis+cluster://h?db=1", "only database 0"),
        ("redis+cluster://h/x", "database number"),
        ("redis+cluster://h?sharded_pubsub=maybe", "auto, on, off, both"),
        ("redis+cluster://h?shardedpubsub=on", "'sharded_pubsub'"),
        ("redis+cluster:h1,h2", "names no host"),
        ("redlock://h1,h2/x", "database number"),
        ("redlock://h1,h2#x", "%23"),
        ("redlock://h1,h2?quorum=2", "unknown URL parameter 'quorum'"),
        ("redlok://h1,h2", "'redlock'"),
        ("redis-sentinel://h/m", "'redis+sentinel'"),
        ("redis+sentinel://h/m?ssl_ca_certs=x", "rediss+sentinel://"),
        ("redis+cluster://h?ssl_ca_certs=x", "rediss+cluster://"),
        ("redlock://h?ssl_ca_certs=x", "redlocks://"),
    ],
)
def test_wrong_url_is_refused_with_a_remedy(url: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(url, {})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "url, keywords, message",
    [
        ("redis+cluster://h", {"db": 1}, "only database 0"),
        ("redlock://h", {"ssl_keyfile": "x"}, "redlocks://"),
        ("redlock://h", {"sentinel_password": "s3cr3t"}, "redis+sentinel:// only"),
        ("redis+sentinel://h/m/1", {"db": 2}, "differently"),
        ("redis+sentinel://u:s3cr3t@h/m", {"credential_provider": object()}, "not both"),
        ("memory:", {"sharded_pubsub": "on"}, "redis+cluster:// only"),
    ],
)
def test_wrong_keyword_is_refused_with_a_remedy(url: str, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(url, keywords)
    assert message in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


# ---- client objects


class _Subclassed(RedisCluster):
    pass


@pytest.mark.parametrize("kind", [RedisCluster, _Subclassed])
def test_sync_cluster_client_gives_the_cluster_engine(kind: type[RedisCluster]) -> None:
    client = kind.__new__(kind)  # its constructor would contact the cluster
    found = parse_target(client, {"ttl": 5, "sharded_pubsub": "Both"})
    assert (found.engine, found.options.ttl, found.engine_options) == ("cluster", 5.0, {"sharded_pubsub": "both"})
    assert found.target is client
    with pytest.raises(UsageError, match="set these on it: password"):
        parse_target(client, {"password": "s3cr3t"})


def test_async_cluster_client_gives_the_cluster_engine() -> None:
    client = redis.asyncio.RedisCluster("h", 7000, password="s3cr3t")
    found = parse_target(client, {})
    assert (found.engine, found.target) == ("cluster", client)
    assert "s3cr3t" not in repr(found)


@pytest.mark.parametrize("kind", [redis.sentinel.Sentinel, redis.asyncio.sentinel.Sentinel])
def test_client_made_by_sentinel_gives_the_sentinel_engine(kind: Any) -> None:
    sentinel = kind([("h", 26379)], sentinel_kwargs={"password": "s3cr3t"}, password="s3cr3t")
    master = sentinel.master_for("m")
    found = parse_target(master, {"ttl": 5})
    assert (found.engine, found.options.ttl, found.engine_options) == ("sentinel", 5.0, {})
    assert found.target is master
    assert "s3cr3t" not in repr(found)
    with pytest.raises(UsageError, match="master_for"):
        parse_target(sentinel.slave_for("m"), {})
    with pytest.raises(UsageError, match="set these on it: sharded_pubsub"):
        parse_target(master, {"sharded_pubsub": "on"})


# ---- secrets


@given(
    st.sampled_from(SEVERAL),
    st.text("/?#@:,=&%[]x1", max_size=6),
    st.text("/?#@:,=&%[]x1", max_size=6),
    st.sampled_from(["h1", "h1,h2", "h1,h1", "h1,", "h1:x", "h1/m", "h1,h2/m/0", "h1/m/x", "h1/0", "h1?x=1"]),
)
def test_unencoded_password_is_never_shown(scheme: str, before: str, after: str, rest: str) -> None:
    try:
        shown = repr(parse_target(f"{scheme}://joe:{before}s3cr3t{after}@{rest}", {}))
    except UsageError as error:
        shown = "".join(traceback.format_exception_only(error)) + repr(error.__cause__)
        if not error.__suppress_context__:
            shown += repr(error.__context__)
    assert "s3cr3t" not in shown
    assert "joe" not in shown
