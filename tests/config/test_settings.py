"""The default target comes from configure, environment, file, or the embedded engine, in this order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._config import parameters
from holdfast._config.settings import configure, resolve_default
from holdfast.errors import InvalidName, UsageError
from tests.config.settings_file import write


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    configure()
    yield
    configure()


# ---- order


def test_without_settings_the_embedded_engine_is_used() -> None:
    assert resolve_default({})[:3] == (None, {}, "embedded")


def test_configure_takes_precedence(tmp_path: Path) -> None:
    configure("memory:x", ttl="5s", namespace="app")
    environment = {"HOLDFAST_URL": "redis://h", "HOLDFAST_TTL": "9"} | write(tmp_path, "nonsense")
    assert resolve_default(environment)[:3] == ("memory:x", {"ttl": "5s", "namespace": "app"}, "configure")
    configure()
    assert resolve_default({})[:3] == (None, {}, "embedded")


def test_environment_takes_precedence_over_the_file(tmp_path: Path) -> None:
    environment = {"HOLDFAST_URL": "memory:e", "HOLDFAST_TTL": "9"} | write(tmp_path, "url = 'memory:f'")
    assert resolve_default(environment)[:3] == ("memory:e", {"ttl": 9.0}, "environment")


def test_label_is_read_from_the_environment_and_the_file(tmp_path: Path) -> None:
    environment = {"HOLDFAST_URL": "memory:", "HOLDFAST_LABEL": "night shift"}
    assert resolve_default(environment).keywords == {"label": "night shift"}
    assert resolve_default(write(tmp_path, "url = 'memory:'\nlabel = 'day'")).keywords == {"label": "day"}
    for label in ('"two\\nlines"', "5"):
        with pytest.raises(UsageError, match="label"):
            resolve_default(write(tmp_path, f"url = 'memory:'\nlabel = {label}"))
    with pytest.raises(UsageError, match="HOLDFAST_LABEL: label"):
        resolve_default({"HOLDFAST_LABEL": "x" * 101})


def test_configure_without_url_overrides_options_of_the_others(tmp_path: Path) -> None:
    configure(namespace="app")
    assert resolve_default({"HOLDFAST_URL": "memory:", "HOLDFAST_NAMESPACE": "x"})[:3] == (
        "memory:",
        {"namespace": "app"},
        "environment",
    )
    assert resolve_default(write(tmp_path, "url = 'memory:f'"))[:3] == ("memory:f", {"namespace": "app"}, "file")
    assert resolve_default({})[:3] == (None, {"namespace": "app"}, "embedded")


def test_process_environment_is_the_default_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "memory:now")
    assert resolve_default().url == "memory:now"


def test_current_directory_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "url = 'memory:trap'")
    monkeypatch.chdir(tmp_path)
    assert resolve_default({}).source == "embedded"


# ---- configure


@pytest.mark.parametrize(
    "url, keywords, error",
    [
        ("rediis://h", {}, UsageError),
        ("redis://h", {"ttl": 0}, ValueError),
        ("memory:", {"namspace": "x"}, UsageError),
        (None, {"namespace": "\ud800"}, InvalidName),
        (None, {"renew": "no"}, TypeError),
    ],
)
def test_invalid_configure_raises_immediately_and_changes_nothing(
    url: str | None, keywords: dict[str, Any], error: type[Exception]
) -> None:
    configure("memory:before")
    with pytest.raises(error):
        configure(url, **keywords)
    assert resolve_default({}).url == "memory:before"


def test_configured_keywords_are_copied() -> None:
    configure("memory:", ttl=5)
    resolve_default({}).keywords["ttl"] = 99
    assert resolve_default({}).keywords == {"ttl": 5}


def test_configure_is_atomic_for_other_threads() -> None:
    stop = threading.Event()
    torn: list[object] = []

    def look() -> None:
        while not stop.is_set():
            found = resolve_default({})
            if found.source == "configure" and found.url != f"memory:{found.keywords['namespace']}":
                torn.append(found)

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for turn in range(300):
        configure(f"memory:{turn}", namespace=str(turn))
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert torn == []


def test_repr_shows_no_secret() -> None:
    configure("redis://joe:s3cr3t@h", client_name="x")
    assert "s3cr3t" not in repr(resolve_default({}))


# ---- environment


def test_every_variable_sets_its_option() -> None:
    found = resolve_default(
        {
            "HOLDFAST_URL": "redis://h",
            "HOLDFAST_TTL": "1m",
            "HOLDFAST_NAMESPACE": "app",
            "HOLDFAST_RENEW": "false",
            "HOLDFAST_REQUEST_TIMEOUT": "500ms",
            "HOLDFAST_UNAVAILABLE_AFTER": "5",
            "HOLDFAST_REPLICAS": "1",
            "HOLDFAST_TOKEN_TTL": "none",
        }
    )
    assert found.keywords == {
        "ttl": 60.0,
        "namespace": "app",
        "renew": False,
        "request_timeout": 0.5,
        "unavailable_after": 5.0,
        "replicas": 1,
        "token_ttl": None,
    }


def test_options_apply_to_the_embedded_engine() -> None:
    assert resolve_default({"HOLDFAST_TTL": "5"})[:3] == (None, {"ttl": 5.0}, "embedded")


VARIABLES = ["URL", "URL_FILE", "CONFIG", "PROFILE", *(name.upper() for name in sorted(parameters.OWN))]


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("empty", ["", " "])
def test_empty_variable_is_refused(name: str, empty: str, tmp_path: Path) -> None:
    """``HOLDFAST_URL=$UNSET`` in a deployment would select the embedded engine: each host would lock on its own."""
    for others in ({}, {"HOLDFAST_URL": "memory:"}, write(tmp_path, "url = 'memory:'")):
        with pytest.raises(UsageError, match=f"HOLDFAST_{name} is set but empty"):
            resolve_default(others | {f"HOLDFAST_{name}": empty})


@pytest.mark.parametrize(
    "variable, message",
    [
        ("HOLDFAST_TLL", "did you mean HOLDFAST_TTL?"),
        ("HOLDFAST_URI", "did you mean HOLDFAST_URL?"),
        ("HOLDFAST_Url", "did you mean HOLDFAST_URL?"),
        ("HOLDFAST_NAMESPCE", "did you mean HOLDFAST_NAMESPACE?"),
        ("HOLDFAST_VERBOSE", "known: HOLDFAST_CONFIG, HOLDFAST_LABEL, HOLDFAST_NAMESPACE, "),
        ("HOLDFAST_", "known: HOLDFAST_CONFIG, "),
        ("HOLDFAST_URLFILE", "did you mean HOLDFAST_URL_FILE?"),
        ("HOLDFAST_PORT", "unknown environment variable 'HOLDFAST_PORT'"),
    ],
)
def test_unknown_variable_is_refused(variable: str, message: str, tmp_path: Path) -> None:
    for others in ({}, {"HOLDFAST_URL": "memory:"}, write(tmp_path, "url = 'memory:'")):
        with pytest.raises(UsageError) as caught:
            resolve_default(others | {variable: "s3cr3t"})
        assert variable in str(caught.value)
        assert message in str(caught.value)
        assert "s3cr3t" not in str(caught.value)


def test_environment_is_not_read_if_the_program_names_the_url() -> None:
    configure("memory:x")
    assert resolve_default({"HOLDFAST_URL": "", "HOLDFAST_TLL": "5"}).source == "configure"


def test_connect_with_a_url_does_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "")
    monkeypatch.setenv("HOLDFAST_TLL", "5")
    holdfast.connect("memory:").close()
    for connect in (holdfast.connect, holdfast.aio.connect):
        with pytest.raises(UsageError, match="HOLDFAST_TLL"):
            connect()


def test_variables_set_by_holdfast_run_are_not_options() -> None:
    """The command may use holdfast itself, with the same environment."""
    reserved = {f"HOLDFAST_{name}": "5" for name in ("NAME", "TOKEN", "OWNER", "HELD")}
    assert resolve_default(reserved | {"HOLDFAST_NAME": ""})[:3] == (None, {}, "embedded")
    with pytest.raises(UsageError, match="did you mean HOLDFAST_NAMESPACE"):
        resolve_default({"HOLDFAST_NAMESPAC": "x"})


def test_kubernetes_service_variables_are_not_options() -> None:
    """Every pod beside a service named "holdfast" or "holdfast-redis" has these variables."""
    service = {
        "HOLDFAST_SERVICE_HOST": "10.0.0.1",
        "HOLDFAST_SERVICE_PORT": "6379",
        "HOLDFAST_SERVICE_PORT_REDIS": "6379",
        "HOLDFAST_PORT": "tcp://10.0.0.1:6379",
        "HOLDFAST_PORT_6379_TCP": "tcp://10.0.0.1:6379",
        "HOLDFAST_PORT_6379_TCP_ADDR": "10.0.0.1",
    }
    other = {name.replace("HOLDFAST", "HOLDFAST_REDIS", 1): text for name, text in service.items()}
    assert resolve_default(service | other | {"HOLDFAST_URL": "memory:"}).url == "memory:"
    with pytest.raises(UsageError, match="HOLDFAST_REDIS_PORT"):
        resolve_default(service | {"HOLDFAST_REDIS_PORT": "6379"})


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"HOLDFAST_URL": "rediis://joe:s3cr3t@h"}, "HOLDFAST_URL: unknown URL scheme"),
        ({"HOLDFAST_URL": "redis://h?ttl=5", "HOLDFAST_TTL": "6"}, "differently"),
        ({"HOLDFAST_TTL": "soon"}, "HOLDFAST_TTL: ttl is not a duration"),
        ({"HOLDFAST_TTL": "8d"}, "HOLDFAST_TTL"),
        ({"HOLDFAST_RENEW": "perhaps"}, "HOLDFAST_RENEW"),
        ({"HOLDFAST_REPLICAS": "two"}, "HOLDFAST_REPLICAS"),
        ({"HOLDFAST_REPLICAS": "9" * 5000}, "HOLDFAST_REPLICAS: replicas is not a whole number"),
        ({"HOLDFAST_REQUEST_TIMEOUT": "0"}, "request_timeout"),
        ({"HOLDFAST_TOKEN_TTL": "1s"}, "token_ttl"),
        ({"HOLDFAST_PROFILE": "x"}, "HOLDFAST_CONFIG"),
        ({"HOLDFAST_PROFILE": "x", "HOLDFAST_URL": "memory:"}, "HOLDFAST_CONFIG"),
        ({"HOLDFAST_URL": "memory:", "HOLDFAST_URL_FILE": "/x"}, "HOLDFAST_URL and HOLDFAST_URL_FILE are both set"),
        ({"HOLDFAST_CONFIG": "/x", "HOLDFAST_TTL": "5"}, "HOLDFAST_TTL and HOLDFAST_CONFIG"),
        ({"HOLDFAST_CONFIG": "/nowhere/holdfast.toml"}, "No such file"),
        ({"HOLDFAST_CONFIG": "/"}, "cannot be read"),
    ],
)
def test_wrong_environment_is_refused_with_a_remedy(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_default(environment)
    assert message in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


# ---- file


def test_top_level_keys_of_the_file_are_read(tmp_path: Path) -> None:
    environment = write(tmp_path, 'url = "rediss://h"\nttl = "1m"\nrenew = false\nssl_ca_certs = "/ca.pem"\n')
    keywords = {"ttl": 60.0, "renew": False, "ssl_ca_certs": "/ca.pem"}
    assert resolve_default(environment)[:3] == ("rediss://h", keywords, "file")


PROFILES = """
profile = "prod"
namespace = "app"
[profiles.prod]
url = "redis://h"
ttl = 10
[profiles.dev]
url = "memory:"
namespace = "dev"
"""


def test_profile_named_in_the_file_is_used(tmp_path: Path) -> None:
    assert resolve_default(write(tmp_path, PROFILES))[:3] == ("redis://h", {"namespace": "app", "ttl": 10}, "file")


def test_profile_named_in_the_environment_wins(tmp_path: Path) -> None:
    environment = write(tmp_path, PROFILES) | {"HOLDFAST_PROFILE": "dev"}
    assert resolve_default(environment)[:3] == ("memory:", {"namespace": "dev"}, "file")


@pytest.mark.parametrize(
    "text, message",
    [
        ("url = \nttl = 5", "line 1"),
        ("pass = 's3cr3t", "not valid TOML"),
        ("ttl = 5", "names no url"),
        ("[profiles.a]\nurl = 'memory:'", "choose a profile with profile = '…' or HOLDFAST_PROFILE: there are 'a'"),
        ("url = 5", "url is not a text"),
        ("url = 'memory:'\ntll = 5", "did you mean 'ttl'?"),
        ("url = 'memory:'\nttl = 'soon'", "not a duration"),
        ("url = 'memory:'\nttl = 0.01", "0.1 s"),
        ("url = 'memory:'\nrenew = 1", "True or False"),
        ("url = 'redis://joe:s3cr3t@h:x'", "port"),
        ("profile = 'prodd'\n[profiles.prod]\nurl = 'memory:'", "did you mean 'prod'?"),
        ("profile = 'a'\nprofiles = 5", "[profiles.NAME]"),
        ("profile = 'a'\n[profiles]\na = 5", "[profiles.a]"),
        ("profile = 5\n[profiles.a]\nurl = 'memory:'", "by its name"),
    ],
)
def test_wrong_file_is_refused_with_a_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_default(write(tmp_path, text))
    assert message in str(caught.value)
    assert "holdfast.toml" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "text, message", [("a = " + "[" * 5000, "nested too deeply"), ("#" * 100_000, "is longer than 64 KiB")]
)
def test_malformed_settings_file_is_a_usage_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_default(write(tmp_path, text))


def test_byte_order_mark_and_windows_newlines_are_accepted(tmp_path: Path) -> None:
    environment = write(tmp_path, "")
    Path(environment["HOLDFAST_CONFIG"]).write_bytes(b"\xef\xbb\xbfurl = 'memory:f'\r\nttl = 5\r\n")
    assert resolve_default(environment)[:2] == ("memory:f", {"ttl": 5})


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    environment = write(tmp_path, "")
    Path(environment["HOLDFAST_CONFIG"]).write_bytes(b"url = '\xff'")
    with pytest.raises(UsageError, match="not UTF-8"):
        resolve_default(environment)
