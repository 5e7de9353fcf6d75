"""Options and targets: values that connect() accepts, their conversion, and errors without secrets."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import subprocess
import sys
import traceback
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
import redis.asyncio.connection as asyncio_connection
import redis.connection as blocking_connection
from hypothesis import given
from hypothesis import strategies as st

from holdfast._config.options import ClientOptions
from holdfast._config.targets import Target, parse_target, redact
from holdfast.engines import registry
from holdfast.engines.redis import options
from holdfast.errors import InvalidName, UsageError

# ---- ClientOptions


def test_option_defaults() -> None:
    assert dataclasses.asdict(ClientOptions()) == {
        "ttl": 30.0,
        "namespace": "",
        "renew": True,
        "request_timeout": 1.0,
        "unavailable_after": 3.0,
        "replicas": 0,
        "token_ttl": 30 * 86400.0,
        "label": None,
        "observer": None,
    }


def test_durations_become_seconds() -> None:
    options = parse_target("memory:", {"ttl": "5m", "request_timeout": timedelta(seconds=2), "token_ttl": None}).options
    assert (options.ttl, options.request_timeout, options.token_ttl) == (300.0, 2.0, None)


def test_label_is_kept_verbatim() -> None:
    for label in ("x", "x" * 100, " night shift ", "\N{EURO SIGN} 5", "\u3000", "None"):
        assert parse_target("memory:", {"label": label}).options.label == label
    assert parse_target("memory:?label=a", {"label": "a"}).options.label == "a"
    assert parse_target("memory:", {"label": None}).options.label is None


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ClientOptions().ttl = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    "keywords, error",
    [
        ({"ttl": 0.05}, ValueError),
        ({"ttl": True}, ValueError),
        ({"ttl": None}, TypeError),
        ({"namespace": 5}, InvalidName),
        ({"namespace": "x" * 513}, InvalidName),
        ({"namespace": None}, InvalidName),
        ({"renew": "yes"}, TypeError),
        ({"renew": 1}, TypeError),
        ({"request_timeout": 0}, ValueError),
        ({"request_timeout": math.inf}, ValueError),
        ({"unavailable_after": -1}, ValueError),
        ({"replicas": -1}, ValueError),
        ({"replicas": True}, TypeError),
        ({"replicas": 1.0}, TypeError),
        ({"token_ttl": 10, "ttl": 20}, ValueError),
        ({"label": 5}, TypeError),
        ({"label": b"billing"}, TypeError),
        ({"label": ""}, ValueError),
        ({"label": "x" * 101}, ValueError),
        ({"label": "two\nlines"}, ValueError),
        ({"label": "\x1b[31mred"}, ValueError),
        ({"label": "c1 \x9b"}, ValueError),
        ({"label": "right-to-left \u202e"}, ValueError),
        ({"label": "line \u2028"}, ValueError),
        ({"label": "\ud800"}, ValueError),
    ],
)
def test_wrong_value_of_an_option_names_it(keywords: dict[str, Any], error: type[Exception]) -> None:
    name = next(iter(keywords))
    with pytest.raises(error, match=name):
        parse_target("memory:", keywords)


# ---- engines


@pytest.mark.parametrize(
    "url, engine, target",
    [
        (None, "sqlite", None),
        ("sqlite:", "sqlite", None),
        ("sqlite:///var/lib/app/locks.db", "sqlite", "/var/lib/app/locks.db"),
        ("sqlite:/var/lib/app/locks.db", "sqlite", "/var/lib/app/locks.db"),
        ("sqlite:////var/locks.db", "sqlite", "/var/locks.db"),
        ("sqlite:rel/path.db", "sqlite", "rel/path.db"),
        ("sqlite:with%20space%3F.db", "sqlite", "with space?.db"),
        ("sqlite:/tmp/%FF.db", "sqlite", os.fsdecode(b"/tmp/\xff.db")),
        ("SQLite:rel.db", "sqlite", "rel.db"),
        ("memory:", "memory", ""),
        ("memory:orders", "memory", "orders"),
        ("redis://localhost:6379/0", "redis", "redis://localhost:6379/0"),
        ("redis://", "redis", "redis://"),
        ("REDIS://localhost", "redis", "redis://localhost"),
        ("redis://u%40x:p%2Fw@h/1", "redis", "redis://u%40x:p%2Fw@h/1"),
        ("rediss://[::1]:6380", "redis", "rediss://[::1]:6380"),
        ("unix:///run/redis.sock", "redis", "unix:///run/redis.sock"),
        ("unix://user:pw@/run/redis.sock?db=2", "redis", "unix://user:pw@/run/redis.sock?db=2"),
    ],
)
def test_url_gives_engine_and_target(url: str | None, engine: str, target: str | None) -> None:
    assert parse_target(url, {}) == Target(engine, target, ClientOptions(), {})


@pytest.mark.parametrize("scheme", sorted(registry.PLANNED))
def test_planned_scheme_is_refused_as_not_yet_available(scheme: str) -> None:
    with pytest.raises(UsageError, match="not yet available in this version"):
        parse_target(f"{scheme}://u:s3cr3t@h1:1,h2:2/x", {})


@pytest.mark.parametrize(
    "url, message",
    [
        ("rediis://h", "'redis'"),
        ("postgres://h", "'postgresql'"),
        ("sqllite:x", "'sqlite'"),
        ("memroy:", "'memory'"),
        ("http://h", "known: redis"),
        ("localhost:6379", "not a URL"),
        ("/var/lib/locks.db", "not a URL"),
        ("", "not a URL"),
        ("redis:localhost", "redis://"),
        ("sqlite://host/path", "sqlite:///absolute"),
        ("sqlite://", "sqlite:///absolute"),
        ("sqlite::memory:", "memory:"),
        ("sqlite:a%00b", "NUL"),
        ("memory://x", "memory:NAME"),
        ("redis://h1:1,h2:2", "one server"),
        ("redis://h/zero", "database number"),
        ("redis://h/0?db=1", "twice"),
        ("redis://h#x", "%23"),
        ("redis://h:port", "port"),
        ("redis://[::1", "cannot be read"),
        ("unix://", "socket"),
        (" redis://h", "white space"),
        ("redis://h\n", "control"),
        ("redis://h?ttl=5&ttl=6", "twice"),
        ("redis://h?ssl_ca_certs=/ca.pem", "rediss://"),
        ("unix:///s?socket_keepalive=yes", "TCP"),
        ("memory:?socket_timeout=5", "unknown URL parameter 'socket_timeout'"),
        ("memory:?tll=5", "'ttl'"),
        ("redis://h?name_space=x", "'namespace'"),
        ("redis://h?sockettimeout=5", "'socket_timeout'"),
        ("redis://h?host=x", "unknown URL parameter 'host'"),
        ("redis://h:0", "1 to 65535"),
        ("redis://h?db=zero", "database number"),
        ("redis://h?sentinel_password=s3cr3t", "redis+sentinel:// only"),
        ("redlock://h?sharded_pubsub=on", "redis+cluster:// only"),
    ],
)
def test_wrong_url_is_refused_with_a_remedy(url: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(url, {})
    assert message in str(caught.value)


# ---- query parameters


def test_own_parameters_are_removed_and_converted() -> None:
    url = (
        "redis://u:p%2Fw@h:1/2?ttl=5m&namespace=a%20b&client_name=n%26m&renew=no&request_timeout=500ms"
        "&unavailable_after=4&replicas=2&token_ttl=none&socket_timeout=5&label=night%20shift"
    )
    found = parse_target(url, {})
    assert found.target == "redis://u:p%2Fw@h:1/2?client_name=n%26m&socket_timeout=5"
    assert found.options == ClientOptions(300.0, "a b", False, 0.5, 4.0, 2, None, "night shift")


@pytest.mark.parametrize("text, value", [("1", True), ("TRUE", True), ("on", True), ("0", False), ("Off", False)])
def test_texts_for_true_and_false_in_a_url(text: str, value: bool) -> None:
    assert parse_target(f"memory:?renew={text}", {}).options.renew is value


@pytest.mark.parametrize(
    "query", ["ttl=soon", "ttl=8d", "ttl=", "renew=maybe", "replicas=-1", "replicas=²", "label=", "label=a%00"]
)
def test_wrong_url_parameter_is_named(query: str) -> None:
    with pytest.raises(UsageError, match=f"URL parameter {query.partition('=')[0]}"):
        parse_target(f"memory:?{query}", {})


def test_pool_settings_in_a_shared_url_are_accepted_and_removed() -> None:
    url = "redis://h/0?max_connections=5&db=0&timeout=3&decode_responses=True"
    found = parse_target(url, {"retry_on_timeout": True})
    assert found.target == "redis://h/0?db=0"
    assert found.engine_options == {}


@given(st.text(max_size=30), st.text(max_size=30))
def test_text_survives_the_query(namespace: str, client_name: str) -> None:
    encoded = quote(client_name, safe="", errors="surrogatepass")
    url = f"redis://h?client_name={encoded}&namespace={quote(namespace, safe='', errors='surrogatepass')}"
    if any("\ud800" <= character <= "\udfff" for character in namespace):
        return  # cannot be encoded in UTF-8, so not in a URL either
    found = parse_target(url, {})
    assert found.options.namespace == namespace
    assert found.target == f"redis://h?client_name={encoded}"


def test_keyword_and_parameter_may_agree() -> None:
    settings = {"db": 3, "client_name": "x", "password": "pw"}
    found = parse_target("redis://u:pw@h/3?ttl=60s&client_name=x", {"ttl": "1m", **settings})
    assert found.options.ttl == 60.0
    assert found.engine_options == settings


@pytest.mark.parametrize(
    "url, keywords",
    [
        ("redis://h?ttl=5", {"ttl": 6}),
        ("redis://h?renew=yes", {"renew": False}),
        ("redis://h?label=a", {"label": "b"}),
        ("redis://h?token_ttl=none", {"token_ttl": 86400}),
        ("redis://h/1", {"db": 2}),
        ("redis://h?client_name=a", {"client_name": "b"}),
        ("redis://u:s3cr3t@h", {"password": "S3cr3t"}),
    ],
)
def test_keyword_and_parameter_may_not_differ(url: str, keywords: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(keywords))) as caught:
        parse_target(url, keywords)
    assert "s3cr3t" not in str(caught.value).lower()


# ---- keywords of the driver


def test_driver_keywords_are_passed_on() -> None:
    provider = object()
    keywords = {"ssl_ca_certs": "/ca.pem", "credential_provider": provider, "ttl": 5}
    found = parse_target("rediss://h", keywords)
    assert found.engine_options == {"ssl_ca_certs": "/ca.pem", "credential_provider": provider}
    assert keywords == {"ssl_ca_certs": "/ca.pem", "credential_provider": provider, "ttl": 5}  # unchanged


@pytest.mark.parametrize(
    "url, keywords, message",
    [
        ("redis://h", {"sll_ca_certs": "x"}, "'ssl_ca_certs'"),
        ("redis://h", {"TTL": 5}, "'ttl'"),
        ("redis://h", {"ssl_keyfile": "x"}, "rediss://"),
        ("unix:///s", {"socket_keepalive": True}, "TCP"),
        ("memory:", {"password": "s3cr3t"}, "unknown option 'password'"),
        (None, {"client_name": "x"}, "unknown option 'client_name'"),
        ("redis://u:s3cr3t@h", {"credential_provider": object()}, "not both"),
    ],
)
def test_wrong_keyword_is_refused_with_a_remedy(url: str | None, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(url, keywords)
    assert message in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def _parameters(*classes: type) -> set[str]:
    found = {name for kind in classes for base in kind.__mro__ for name in inspect.signature(base).parameters}
    return found - {"self", "args", "kwargs"}


def test_parameter_lists_match_the_installed_driver() -> None:
    """Detects drift: a new parameter of redis-py must be listed here or excluded below."""
    internal = {
        "command_packer", "encoder_class", "event_dispatcher", "himport_registry", "host", "maint_notifications_config",
        "maint_notifications_pool_handler", "maintenance_notification_hash", "maintenance_state", "orig_host_address",
        "orig_socket_connect_timeout", "orig_socket_timeout", "oss_cluster_maint_notifications_handler", "parser",
        "parser_class", "path", "port",
    }  # fmt: skip
    passed_on = options.URL_OPTIONS | options.OBJECT_OPTIONS
    blocking = _parameters(blocking_connection.SSLConnection, blocking_connection.UnixDomainSocketConnection)
    asynchronous = _parameters(asyncio_connection.SSLConnection, asyncio_connection.UnixDomainSocketConnection)
    assert passed_on <= blocking
    assert (blocking | asynchronous) - passed_on - options.WITHOUT_EFFECT == internal
    by_url = set(blocking_connection.URL_QUERY_ARGUMENT_PARSERS)
    assert by_url <= options.URL_OPTIONS | options.WITHOUT_EFFECT


# ---- client objects


class _Subclassed(redis.Redis):
    pass


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis, _Subclassed])
def test_client_of_redis_py_gives_the_redis_engine(kind: Any) -> None:
    client = kind(host="h", password="s3cr3t")
    found = parse_target(client, {"ttl": 5})
    assert (found.engine, found.options.ttl, found.engine_options) == ("redis", 5.0, {})
    assert found.target is client
    assert "s3cr3t" not in repr(found)


def test_connection_settings_beside_a_client_are_refused() -> None:
    with pytest.raises(UsageError, match="client_name"):
        parse_target(redis.Redis(), {"client_name": "x"})


def _fake_client(module: str, name: str, **attributes: object) -> object:
    return type(name, (), {"__module__": module, **attributes})()


@pytest.mark.parametrize(
    "client, message",
    [
        (_fake_client("coredis.client.basic", "Redis", connection_pool=1), "coredis.client.basic.Redis"),
        (_fake_client("redisson.client", "Redis", connection_pool=1), "neither"),
        (_fake_client("fakeredis._server", "FakeRedis", connection_pool=1), "memory:"),
        (_fake_client("coredis.client.cluster", "RedisCluster"), "neither"),
        (redis.ConnectionPool(), "neither"),
        (b"redis://h", "builtins.bytes"),
        (42, "builtins.int"),
    ],
)
def test_object_that_is_no_client_is_refused(client: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(client, {})
    assert message in str(caught.value)


# ---- secrets


@pytest.mark.parametrize("scheme", [*registry.SCHEMES, *registry.PLANNED, "rediis", "http"])
@pytest.mark.parametrize(
    "rest",
    [
        "://joe:s3cr3t@host:x",
        "://joe:s3cr3t@h/x",
        "://joe:s3cr3t#@h",
        "://joe:s3cr3t/@h",
        "://joe:s3cr3t?@h",
        "://joe:12?s3cr3t@h",
        "://joe:12?s3cr3t@h=1",
        "://joe:12?s3cr3t=1@h",
        "://joe:12/s3cr3t@h1",
        "://joe:12/s3cr3t@h1,h2/m",
        "://joe:12,s3cr3t/@h1,h2/m",
        "://joe:s3cr3t@h1,joe:s3cr3t@h2/m",
        "://joe:s3cr3t@h1,joe:s3cr3t@h1/m?password=s3cr3t",
        "://joe:s3cr3t@h1,h2/m/0?sentinel_password=s3cr3t",
        "://joe:s3cr3t@[h",
        "://joe:s3cr3t@h?unknown_=1",
        "://h?password=s3cr3t&joe@x=1",
        "://joe:s3cr3t\u2100@h",
        ":joe:s3cr3t@h",
    ],
)
def test_no_error_repeats_user_info(scheme: str, rest: str) -> None:
    url = scheme + rest
    if url.startswith(("sqlite:joe", "memory:joe")):
        return  # a file name or a store name
    assert "s3cr3t" not in redact(url)
    assert "s3cr3t" not in repr(_target_or_harmless_error(url))


def _target_or_harmless_error(url: str) -> Target | None:
    """Any text is a target or a UsageError, and neither the error nor its causes show user info."""
    try:
        return parse_target(url, {})
    except UsageError as error:
        shown = "".join(traceback.format_exception_only(error)) + repr(error.__cause__)
        if "s3cr3t" in shown or "joe" in shown or not (error.__suppress_context__ or error.__context__ is None):
            pytest.fail(f"the error shows user info: {shown}")
        return None


def test_user_name_is_not_taken_for_a_scheme() -> None:
    with pytest.raises(UsageError) as caught:
        parse_target("joe:s3cr3t@host", {})
    assert "joe" not in str(caught.value)


@given(st.text())
def test_any_text_is_a_target_or_a_usage_error(text: str) -> None:
    try:
        parse_target(text, {})
    except (UsageError, InvalidName):
        pass


def test_no_driver_is_imported() -> None:
    program = (
        "import sys, holdfast._config.targets as o, holdfast._config.settings\n"
        "for url in ('redis://h?ttl=5', 'redis+sentinel://h/m', 'redis+cluster://h', 'redlock://h'):\n"
        "    o.parse_target(url, {'client_name': 'x'})\n"
        "assert not {'redis', 'hiredis', 'sqlite3', 'asyncio'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
