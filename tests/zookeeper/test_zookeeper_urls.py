"""URLs and options of ZooKeeper: the target and options of the engine, and which URLs are refused without any I/O."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import Auth
from kazoo.security import CREATOR_ALL_ACL

from holdfast._config.options import ClientOptions
from holdfast._config.targets import Target, parse_target
from holdfast.engines.zookeeper import options
from holdfast.engines.zookeeper.target import ZooKeeperTarget
from holdfast.errors import UsageError

#: The engine's options when none are given.
PLAIN = {"acl": "open", "tick": 2.0}


def options_of(query: str = "", before: str = "", **keywords: Any) -> dict[str, Any]:
    return parse_target(f"zookeeper://{before}h" + (f"?{query}" if query else ""), keywords).engine_options


# ---- targets


@pytest.mark.parametrize(
    "url, hosts, base",
    [
        ("zookeeper://h", [("h", 2181)], ""),
        ("zookeeper://h/", [("h", 2181)], ""),
        ("zookeeper://h1:1,H2,[::1]:7/base", [("h1", 1), ("h2", 2181), ("::1", 7)], "/base"),
        ("zookeeper://[fe80::1%25eth0]/a/b/", [("fe80::1%eth0", 2181)], "/a/b"),
        ("ZooKeeper://h/a%20b/%C3%A9:,%2525", [("h", 2181)], "/a b/é:,%25"),
        ("zookeeper://h/a/zookeeper", [("h", 2181)], "/a/zookeeper"),
        ("zookeeper://h/zookeepers", [("h", 2181)], "/zookeepers"),
        ("zookeeper://h1,h1/%40", [("h1", 2181), ("h1", 2181)], "/@"),
    ],
)
def test_url_gives_hosts_and_base(url: str, hosts: list[tuple[str, int]], base: str) -> None:
    found = parse_target(url, {})
    assert found == Target("zookeeper", ZooKeeperTarget(tuple(hosts), base), ClientOptions(), PLAIN)
    assert type(found.target) is ZooKeeperTarget
    assert found.target.connection_string + base in repr(found)


names_of_hosts = st.from_regex(r"[a-z0-9_]([a-z0-9._-]{0,20}[a-z0-9])?", fullmatch=True)
hosts = st.one_of(names_of_hosts, st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str))


@given(st.lists(st.tuples(hosts, st.none() | st.integers(1, 65535)), min_size=1, max_size=5))
def test_kazoo_reads_the_hosts_that_were_written(written: list[tuple[str, int | None]]) -> None:
    bracketed = [(f"[{host}]" if ":" in host else host, port) for host, port in written]
    url = "zookeeper://" + ",".join(host if port is None else f"{host}:{port}" for host, port in bracketed)
    target = parse_target(url + "/base", {}).target
    expected = [(host, 2181 if port is None else port) for host, port in written]
    assert list(target.hosts) == expected
    assert collect_hosts(target.connection_string) == (expected, None)


def test_own_options_are_taken_from_url_and_keywords() -> None:
    found = parse_target("zookeeper://h/b?ttl=5m&namespace=a", {"renew": False})
    assert found.options == ClientOptions(300, "a", False)
    assert found.engine_options == PLAIN


# ---- options


@given(st.text(min_size=1), st.text(min_size=1))
def test_user_info_is_a_digest(user: str, password: str) -> None:
    user, password = (text.encode("utf-8", "replace").decode() for text in (user.replace(":", "x"), password))
    encoded = ":".join("".join(f"%{byte:02X}" for byte in text.encode()) for text in (user, password))
    expected = {**PLAIN, "acl": "creator", "auth_data": (("digest", f"{user}:{password}"),)}
    assert options_of(before=f"{encoded}@") == expected
    assert options_of(username=user, password=password) == expected
    assert options_of(before=f"{encoded}@", username=user) == expected


def test_texts_are_converted_to_the_types_of_kazoo() -> None:
    query = "use_ssl=Yes&ca=/ca.pem&certfile=c&keyfile=k&keyfile_password=s3cr3t&verify_certs=1&randomize_hosts=off"
    expected: dict[str, Any] = {
        **PLAIN,
        "use_ssl": True,
        "ca": "/ca.pem",
        "certfile": "c",
        "keyfile": "k",
        "keyfile_password": "s3cr3t",
        "verify_certs": True,
        "check_hostname": True,
        "randomize_hosts": False,
        "tick": 0.5,
    }
    assert options_of(f"{query}&tick=500ms") == expected
    keywords = {**expected, "ca": Path("/ca.pem")}
    assert options_of(**keywords) == expected
    assert options_of(f"{query}&tick=500ms&acl=OPEN", **keywords) == expected


@pytest.mark.parametrize(
    "query, checked",
    [
        ("use_ssl=true", True),
        ("use_ssl=true&check_hostname=false", False),
        ("use_ssl=true&verify_certs=false", False),
        ("use_ssl=false", None),
    ],
)
def test_host_names_are_checked_unless_the_check_is_switched_off(query: str, checked: bool | None) -> None:
    assert options_of(query).get("check_hostname") is checked


def test_sasl_parameters_become_sasl_options() -> None:
    digest = "sasl_mechanism=digest-md5&sasl_username=joe&sasl_password=s3cr3t&sasl_service=zk"
    as_dict = {"mechanism": "DIGEST-MD5", "username": "joe", "password": "s3cr3t", "service": "zk"}
    assert options_of(digest) == {**PLAIN, "acl": "creator", "sasl_options": as_dict}
    assert options_of(sasl_options=as_dict) == options_of(digest)
    assert options_of("sasl_mechanism=GSSAPI")["sasl_options"] == {"mechanism": "GSSAPI"}


@pytest.mark.parametrize(
    "query, keywords, acl",
    [
        ("", {"username": "u", "password": "p"}, "creator"),
        ("acl=open", {"username": "u", "password": "p"}, "open"),
        ("", {"auth_data": [("digest", "u:p")]}, "creator"),
        ("", {"auth_data": []}, "open"),
        ("use_ssl=1&certfile=c&keyfile=k", {}, "open"),
        ("use_ssl=1&certfile=c&keyfile=k&acl=creator", {}, "creator"),
        ("", {"default_acl": CREATOR_ALL_ACL}, None),
    ],
)
def test_acl_depends_on_authentication(query: str, keywords: dict[str, Any], acl: str | None) -> None:
    found = options_of(query, **keywords)
    assert found.get("acl") == acl
    assert found.get("default_acl") == keywords.get("default_acl")


def test_digest_and_other_credentials_are_combined() -> None:
    given_data = [("ip", "x"), ("digest", "ann:pw")]
    found = options_of(before="joe:s3cr3t@", auth_data=given_data)
    assert found["auth_data"] == (("digest", "joe:s3cr3t"), ("ip", "x"), ("digest", "ann:pw"))
    assert given_data == [("ip", "x"), ("digest", "ann:pw")]  # not changed


def test_parameter_lists_match_the_installed_driver() -> None:
    """Detects drift: each new parameter of kazoo must be added to one of the lists."""
    parameters_of_kazoo = set(inspect.signature(KazooClient).parameters) - {"kwargs"}
    ours = {"acl", "tick", "username", "password", "sasl_mechanism", "sasl_username", "sasl_password", "sasl_service"}
    assert ours <= options.URL_OPTIONS
    passed_on = (options.URL_OPTIONS - ours) | options.OBJECT_OPTIONS
    assert passed_on | options.REFUSED_OPTIONS.keys() == parameters_of_kazoo
    assert not passed_on & options.REFUSED_OPTIONS.keys()


def test_kazoo_accepts_the_options_of_the_engine() -> None:
    query = "use_ssl=yes&ca=c&certfile=c&keyfile=k&keyfile_password=p&randomize_hosts=no&sasl_mechanism=GSSAPI"
    found = parse_target(f"zookeeper://joe:s3cr3t@h1,[::1]/b?{query}", {"default_acl": CREATOR_ALL_ACL})
    options = {name: value for name, value in found.engine_options.items() if name != "tick"}
    client = KazooClient(found.target.connection_string, **options)
    assert client.auth_data == {("digest", "joe:s3cr3t")}
    assert client.hosts == [("h1", 2181), ("::1", 2181)]
    assert client._connection.sasl_options == {"mechanism": "GSSAPI"}
    client.close()


# ---- refused


@pytest.mark.parametrize(
    "rest, message",
    [
        ("", "names no host; write zookeeper://"),
        ("/base", "names no host"),
        ("joe:pw@", "names no host"),
        ("h1,,h2", "host 2 of 3"),
        ("h1, h2", "white space"),
        ("h1,h2:0", "1 to 65535"),
        ("h1,h2:65536", "1 to 65535"),
        ("h1,::1", "brackets"),
        ("joe:pw@h1,joe:pw@h2", "user info stands once"),
        ("h//b", "node 1 of"),
        ("h/a//b", "node 2 of"),
        ("h/a/./b", "node 2 of"),
        ("h/%2E%2E", "node 1 of"),
        ("h/a%2Fb", "encoded '/'"),
        ("h/a%00", "node 1 of"),
        ("h/a/%FF", "not UTF-8"),
        ("h/%F0%9F%94%92", "a character that ZooKeeper refuses"),
        ("h/zookeeper", "ZooKeeper's own"),
        ("h/zookeeper/locks", "ZooKeeper's own"),
        ("h/a@b", "%40"),
        ("h?password=a@b", "%40"),
        ("h#x", "%23"),
        ("joe@h", "a username and a password"),
        (":pw@h", "a username and a password"),
        ("joe:@h", "a username and a password"),
        ("a%3Ab:pw@h", "no ':'"),
        ("joe:pw@h?username=joe", "given twice in the URL"),
        ("h?use_ssl=maybe", "neither true nor false"),
        ("h?ca=/ca.pem", "add use_ssl=true"),
        ("h?use_ssl=no&verify_certs=no", "add use_ssl=true"),
        ("h?use_ssl=1&ca=", "ca is empty"),
        ("h?use_ssl=1&certfile=c", "go together"),
        ("h?use_ssl=1&keyfile=c", "go together"),
        ("h?use_ssl=1&keyfile_password=c", "without keyfile"),
        ("h?use_ssl=1&verify_certs=0&check_hostname=1", "remove one"),
        ("h?tick=0", "tick is 0"),
        ("h?tick=soon", "URL parameter tick is not a duration"),
        ("h?acl=creator", "add a user"),
        ("h?acl=none", "acl is none of open, creator"),
        ("h?sasl_username=joe", "sasl_mechanism"),
        ("h?sasl_mechanism=PLAIN", "DIGEST-MD5, GSSAPI"),
        ("h?sasl_mechanism=DIGEST-MD5&sasl_username=joe", "sasl_password"),
        ("h?read_only=true", "takes writes"),
        ("h?timeout=5", "is ttl"),
        ("h?tik=5", "'tick'"),
        ("h?default_acl=x", "unknown URL parameter 'default_acl'"),
        ("h?sentinel_password=x", "redis+sentinel:// only"),
        ("h?tick=1&tick=2", "twice"),
    ],
)
def test_wrong_url_is_refused_with_a_remedy(rest: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(f"zookeeper://{rest}", {})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "before, keywords, message",
    [
        ("", {"handler": object()}, "holdfast brings its own"),
        ("", {"read_only": False}, "takes writes"),
        ("", {"ssl_ca_certs": "x"}, "unknown option 'ssl_ca_certs'"),
        ("", {"TTL": 5}, "'ttl'"),
        ("joe:s3cr3t@", {"password": "S3cr3t"}, "password is given as a keyword and, differently"),
        ("joe:s3cr3t@", {"acl": "open", "default_acl": CREATOR_ALL_ACL}, "not both"),
        ("", {"sasl_options": {"mechanism": "GSSAPI"}, "sasl_service": "x"}, "not both"),
    ],
)
def test_wrong_keyword_is_refused_with_a_remedy(before: str, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        options_of(before=before, **keywords)
    assert message in str(caught.value)
    assert "s3cr3t" not in str(caught.value).lower()


@pytest.mark.parametrize(
    "keywords, error",
    [
        ({"use_ssl": "yes"}, TypeError),
        ({"use_ssl": 1}, TypeError),
        ({"password": b"s3cr3t"}, TypeError),
        ({"password": ""}, ValueError),
        ({"password": None}, TypeError),
        ({"tick": True}, ValueError),
        ({"tick": 0}, ValueError),
        ({"acl": "none"}, ValueError),
        ({"acl": CREATOR_ALL_ACL}, TypeError),
        ({"default_acl": []}, TypeError),
        ({"auth_data": "digest"}, TypeError),
        ({"auth_data": ["digest", "joe:s3cr3t"]}, TypeError),
        ({"auth_data": [("digest", b"joe:s3cr3t")]}, TypeError),
        ({"auth_data": [("sasl", "joe:s3cr3t")]}, ValueError),
        ({"sasl_options": "GSSAPI"}, TypeError),
        ({"sasl_options": {"password": "s3cr3t"}}, ValueError),
        ({"sasl_mechanism": "s3cr3t"}, ValueError),
    ],
)
def test_wrong_value_of_an_option_names_it(keywords: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(keywords))) as caught:
        options_of(**keywords)
    assert "s3cr3t" not in str(caught.value)


class _Subclassed(KazooClient):  # type: ignore[misc]
    pass


@pytest.mark.parametrize("kind", [KazooClient, _Subclassed])
def test_a_client_of_kazoo_is_refused_with_the_remedy(kind: Any) -> None:
    client = kind("h", auth_data=[("digest", "joe:s3cr3t")])
    with pytest.raises(UsageError, match="sessions of its own, with the time-out ttl; give a URL") as caught:
        parse_target(client, {})
    assert "s3cr3t" not in str(caught.value)
    client.close()


def test_kazoo_is_not_imported() -> None:
    program = (
        "import sys, holdfast._config.targets as o, holdfast.engines.registry\n"
        "found = o.parse_target('zookeeper://joe:pw@h1,h2/b?use_ssl=1', {'tick': 1})\n"
        "assert not {'kazoo', 'asyncio'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


# ---- secrets


@given(
    st.text("/?#@:,=&%[]x1", max_size=6),
    st.text("/?#@:,=&%[]x1", max_size=6),
    st.sampled_from(["h1", "h1,h2", "h1,", "h1:x", "h1/b", "h1,h2/b/c", "h1/zookeeper", "h1?x=1", "h1?tick=x"]),
)
def test_unencoded_password_is_never_shown(before: str, after: str, rest: str) -> None:
    try:
        target = parse_target(f"zookeeper://joe:{before}s3cr3t{after}@{rest}", {})
        shown = repr(target) + repr(target.engine_options).replace("'joe'", "")
    except UsageError as error:
        shown = "".join(traceback.format_exception_only(error)) + repr(error.__cause__)
        if not error.__suppress_context__:
            shown += repr(error.__context__)
    assert "s3cr3t" not in shown
    assert "joe" not in shown


@pytest.mark.parametrize(
    "query, keywords",
    [
        ("", {"username": "joe", "password": "s3cr3t"}),
        ("username=joe&password=s3cr3t", {}),
        ("use_ssl=1&certfile=c&keyfile=k&keyfile_password=s3cr3t", {}),
        ("sasl_mechanism=DIGEST-MD5&sasl_username=joe&sasl_password=s3cr3t", {}),
        ("", {"sasl_options": {"mechanism": "DIGEST-MD5", "password": "s3cr3t"}}),
        ("", {"auth_data": [("digest", "joe:s3cr3t")]}),
    ],
)
def test_parsed_options_show_no_secret(query: str, keywords: dict[str, Any]) -> None:
    found = parse_target(f"zookeeper://h?{query}", keywords)
    assert "s3cr3t" not in repr(found) + str(found) + repr(found.engine_options) + str(found.engine_options)


def test_kazoos_log_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """kazoo logs every request at DEBUG; this is the one that carries the password."""
    scheme, credential = options_of(before="joe:s3cr3t@")["auth_data"][0]
    request = Auth(0, scheme, credential)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("kazoo.client").debug("Sending request(xid=%s): %s", -4, request)
    assert "Auth(auth_type=0, scheme='digest'" in caplog.text
    assert "s3cr3t" not in caplog.text
    assert b"joe:s3cr3t" in request.serialize()
