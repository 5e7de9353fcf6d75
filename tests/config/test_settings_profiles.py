"""Profiles of the settings file: selection, and checks of unselected profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._config.settings import configure, resolve_default
from holdfast.errors import UsageError
from tests.config.settings_file import write

PROFILES = """
profile = "production"
namespace = "shop"
[profiles.production]
url = "redis://h"
replicas = 1
[profiles.laptop]
url = "memory:laptop"
namespace = "dev"
"""
CONNECT = [holdfast.connect, holdfast.aio.connect]


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    configure()
    yield
    configure()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HOLDFAST_CONFIG names a file with the profiles above."""
    for name, value in write(tmp_path, PROFILES).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("connect", CONNECT)
@pytest.mark.usefixtures("config")
def test_connect_selects_a_profile(connect: Callable[..., Any]) -> None:
    client = connect(profile="laptop")
    assert (client._options.namespace, client._engine.scheme) == ("dev", "memory")
    assert connect(profile="laptop", namespace="here")._options.namespace == "here"


@pytest.mark.parametrize("connect", [*CONNECT, configure])
@pytest.mark.usefixtures("config")
def test_profile_beside_a_url_is_refused(connect: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"a URL .* and a profile are both given"):
        connect("memory:", profile="laptop")


@pytest.mark.parametrize("connect", [*CONNECT, configure])
def test_profile_without_a_settings_file_is_refused(
    connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_CONFIG", raising=False)
    with pytest.raises(UsageError, match="profile 'laptop' is chosen, but HOLDFAST_CONFIG does not name the file"):
        connect(profile="laptop")


@pytest.mark.parametrize("connect", [*CONNECT, configure])
@pytest.mark.usefixtures("config")
def test_unknown_profile_is_refused_with_a_suggestion(connect: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"unknown profile 'laptob'; did you mean 'laptop'\?"):
        connect(profile="laptob")
    with pytest.raises(UsageError, match="unknown profile 'zk'; there are: 'laptop', 'production'"):
        connect(profile="zk")


@pytest.mark.parametrize("wrong, error", [(5, TypeError), ("", UsageError), (" ", UsageError)])
@pytest.mark.usefixtures("config")
def test_invalid_name_of_a_profile_is_refused(wrong: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="profile is"):
        holdfast.connect(profile=wrong)  # type: ignore[arg-type]


@pytest.mark.usefixtures("config")
def test_profile_none_equals_no_profile() -> None:
    assert holdfast.connect("memory:", profile=None)._engine.scheme == "memory"
    assert holdfast.connect(profile=None)._options.replicas == 1


@pytest.mark.usefixtures("config")
def test_explicit_profile_takes_precedence_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile names the target, like a URL in its place."""
    configure("memory:configured", ttl=5)
    monkeypatch.setenv("HOLDFAST_URL", "memory:environment")
    monkeypatch.setenv("HOLDFAST_TTL", "7")
    found = resolve_default(profile="laptop")
    assert found[:3] == ("memory:laptop", {"namespace": "dev"}, "file")
    configure()
    assert resolve_default(profile="laptop").url == "memory:laptop"
    assert resolve_default().url == "memory:environment"


@pytest.mark.usefixtures("config")
def test_configure_selects_a_profile_and_keywords_override_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "memory:environment")
    configure(profile="laptop", ttl=5)
    assert resolve_default()[:3] == ("memory:laptop", {"namespace": "dev", "ttl": 5}, "file")
    assert resolve_default(profile="production").keywords == {"namespace": "shop", "replicas": 1, "ttl": 5}


@pytest.mark.usefixtures("config")
def test_configure_checks_keywords_beside_a_profile_immediately() -> None:
    with pytest.raises(UsageError, match="client_name"):
        configure(profile="laptop", client_name="x")
    configure(profile="production", client_name="x")


def test_environment_options_beside_a_profile_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="HOLDFAST_TTL and HOLDFAST_CONFIG are both set"):
        resolve_default(write(tmp_path, PROFILES) | {"HOLDFAST_TTL": "5"}, profile="laptop")


def test_target_in_a_profile_replaces_the_shared_target(tmp_path: Path) -> None:
    environment = write(tmp_path, "url_file = '/nowhere'\nprofile = 'a'\n[profiles.a]\nurl = 'memory:a'")
    assert resolve_default(environment)[:3] == ("memory:a", {}, "file")


CHOSEN = "profile = 'chosen'\n[profiles.chosen]\nurl = 'memory:'\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("tll = 5\n" + CHOSEN, "unknown key 'tll'; did you mean 'ttl'?"),
        ("urlfile = '/x'\n" + CHOSEN, "did you mean 'url_file'?"),
        ("profil = 'x'\nurl = 'memory:'", "unknown key 'profil'; did you mean 'profile'?"),
        ("'my key' = 5\n" + CHOSEN, "unknown key 'my key'"),
        (CHOSEN + "tll = 5", "profile 'chosen': unknown key 'tll'; did you mean 'ttl'?"),
        (CHOSEN + "[profiles.other]\nurl = 'memory:'\nttl_ = 5", "profile 'other': unknown key 'ttl_'"),
        (CHOSEN + "[profiles.other]\nurl = 'sqlite:'\ncertfile = 'x'", "profile 'other': unknown key 'certfile'"),
        (CHOSEN + "[profiles.other]\nurl_file = '/nowhere'\nclientname = 'x'", "did you mean 'client_name'?"),
        (CHOSEN + "[profiles.other]\nprofile = 'x'", "profile 'other': unknown key 'profile'"),
        (CHOSEN + "[profiles.other]\nurl = 'memory:'\nurl_file = '/x'", "url and url_file are both given"),
        (CHOSEN + "[profiles.other.redis]\nurl = 'memory:'", "profile 'other': unknown key 'redis'"),
        (CHOSEN + "[profiles]\nother = 5", "profile 'other' is not a table; write [profiles.other]"),
        ("url = 'memory:'\nprofiles = 5", "[profiles.NAME]"),
        ("url = 'memory:'\nurl_file = '/x'", "url and url_file are both given"),
        ("profile = 'a'\nurl = 'memory:'", "unknown profile 'a'; it has none"),
    ],
)
def test_wrong_keys_are_refused_in_every_profile(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_default(write(tmp_path, text))
    assert message in str(caught.value)
    assert "holdfast.toml" in str(caught.value)


@pytest.mark.parametrize(
    "other",
    [
        "url_file = '/nowhere'\ncertfile = 'x'",  # a ZooKeeper option; the file may exist only on another host
        "url = 'etcd://h'",  # a scheme of another version
        "url = 'zookeeper://h'\nhandler = 'x'",  # refused with a reason when it is selected
        "ttl = 'soon'",
    ],
)
def test_values_of_a_profile_that_is_not_chosen_are_not_checked(tmp_path: Path, other: str) -> None:
    assert resolve_default(write(tmp_path, f"{CHOSEN}[profiles.other]\n{other}")).url == "memory:"


# ---- origins


def test_every_value_has_an_origin(tmp_path: Path) -> None:
    environment = write(tmp_path, PROFILES)
    path = environment["HOLDFAST_CONFIG"]
    found = resolve_default(environment)
    assert found.profile == "production"
    assert found.file == path
    assert found.origins == {
        "namespace": f"file '{path}'",
        "url": f"file '{path}' [profiles.production]",
        "replicas": f"file '{path}' [profiles.production]",
        "profile": f"file '{path}'",
    }
    by_variable = resolve_default(environment | {"HOLDFAST_PROFILE": "laptop"})
    assert by_variable.origins["profile"] == "environment variable HOLDFAST_PROFILE"
    assert by_variable.origins["namespace"] == f"file '{path}' [profiles.laptop]"


def test_origins_from_the_environment_and_the_program() -> None:
    configure(ttl=5)
    found = resolve_default({"HOLDFAST_URL": "memory:", "HOLDFAST_TTL": "7", "HOLDFAST_NAMESPACE": "x"})
    assert found.origins == {
        "url": "environment variable HOLDFAST_URL",
        "ttl": "configure()",
        "namespace": "environment variable HOLDFAST_NAMESPACE",
    }
