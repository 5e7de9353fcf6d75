"""``holdfast config`` prints every setting with its origin and no secret."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast._config import parameters
from holdfast._config.options import ClientOptions
from holdfast.cli.masking import is_secret, masked_secret_url, masked_url
from tests.cli.command import Run

SECRET = "s3cr3t"


def origins(run: Run, *arguments: str) -> dict[str, tuple[object, str]]:
    done = run("config", "--json", *arguments)
    assert (done.code, done.err) == (0, "")
    return {name: (one["value"], one["origin"]) for name, one in done.json["settings"].items()}


def test_without_settings_every_value_is_a_default(run: Run) -> None:
    found = origins(run)
    defaults = {name: (getattr(ClientOptions(), name), "default") for name in parameters.OWN}
    assert found == {"profile": (None, "default"), "file": (None, "default"), "url": ("sqlite:", "default")} | defaults


def test_values_from_the_environment_and_the_url(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", f"redis://joe:{SECRET}@h:1234/5?replicas=1&client_name=x")
    monkeypatch.setenv("HOLDFAST_TTL", "20s")
    found = origins(run)
    assert found["url"] == ("redis://joe:***@h:1234/5?replicas=1&client_name=x", "environment variable HOLDFAST_URL")
    assert found["ttl"] == (20.0, "environment variable HOLDFAST_TTL")
    assert found["replicas"] == (1, "URL parameter replicas")
    assert found["renew"] == (True, "default")
    assert (found["username"], found["password"], found["db"]) == (("joe", "URL"), ("***", "URL"), ("5", "URL"))
    assert found["client_name"] == ("x", "URL")


CONFIG = f"""
profile = "production"
namespace = "shop"
[profiles.production]
url = "redis+sentinel://s1,s2/mymaster"
sentinel_password = "{SECRET}"
replicas = 1
[profiles.zk]
url_file = "url"
sasl_mechanism = "DIGEST-MD5"
sasl_username = "joe"
sasl_password = "{SECRET}"
"""


def test_values_from_a_profile(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_text(CONFIG)
    (tmp_path / "url").write_text(f"zookeeper://joe:{SECRET}@z1/base?tick=3\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(path))
    found = origins(run)
    assert found["profile"] == ("production", f"file '{path}'")
    assert found["file"] == (str(path), "environment variable HOLDFAST_CONFIG")
    assert found["namespace"] == ("shop", f"file '{path}'")
    assert found["replicas"] == (1, f"file '{path}' [profiles.production]")
    assert found["sentinel_password"] == ("***", f"file '{path}' [profiles.production]")
    found = origins(run, "--profile", "zk", "--namespace", "here")
    assert found["profile"] == ("zk", "--profile")
    assert found["namespace"] == ("here", "--namespace")
    assert found["url"] == (
        "zookeeper://***@z1/base",
        f"file '{tmp_path / 'url'}' (url_file in file '{path}' [profiles.zk])",
    )
    assert (found["username"], found["tick"]) == (("***", "URL"), ("3", "URL"))
    assert found["sasl_password"][0] == "***"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_secret_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: list[str]) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_text(CONFIG)
    (tmp_path / "url").write_text(f"zookeeper://joe:{SECRET}@z1/base\n")
    url = f"rediss+sentinel://joe:{SECRET}@h/m?sentinel_password={SECRET}&ssl_password={SECRET}"
    for environment in ({"HOLDFAST_CONFIG": path}, {"HOLDFAST_URL_FILE": tmp_path / "url"}, {"HOLDFAST_URL": url}):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, str(value))
            for more in [[], ["--profile", "zk"]] if "HOLDFAST_CONFIG" in environment else [[]]:
                done = run("config", *form, *more)
                assert done.code == 0
                assert "***" in done.out
                assert SECRET not in done.out + done.err


def test_values_without_a_json_type_are_strings(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"
    path.write_text("url = 'redis://h'\nclient_name = 1979-05-27\nsocket_timeout = inf\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(path))
    found = origins(run)
    assert (found["client_name"][0], found["socket_timeout"][0]) == ("1979-05-27", "inf")


def test_text_output_shows_the_engine_and_its_guarantees(run: Run) -> None:
    done = run("config", "--url", "memory:a")
    lines = done.out.splitlines()
    assert ["url", "memory:a", "--url"] in [line.split() for line in lines]
    assert "engine: memory" in lines
    assert ["cross_process", "false"] in [line.split() for line in lines]
    assert run("config", "--url", "memory:a", "--json").json["guarantees"]["fair"] is True


def test_config_opens_no_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("config connects")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for url in ("redis://h", "redis+cluster://h", "redlock://a,b,c", "zookeeper://h"):
        assert run("config", "--url", url).code == 0


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"HOLDFAST_TLL": "5"}, "did you mean HOLDFAST_TTL?"),
        ({"HOLDFAST_URL": ""}, "set but empty"),
        ({"HOLDFAST_URL": f"rediis://joe:{SECRET}@h"}, "unknown URL scheme"),
        ({"HOLDFAST_URL": "memory:", "HOLDFAST_URL_FILE": "/x"}, "both set"),
        ({"HOLDFAST_URL_FILE": "/nowhere\x1b"}, "cannot be read"),
        ({"HOLDFAST_CONFIG": "/nowhere"}, "cannot be read"),
    ],
)
def test_wrong_setting_exits_with_78_and_a_one_line_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = run("config")
    assert (done.code, done.out) == (78, "")
    (line,) = done.err.splitlines()
    assert message in line
    assert line.isprintable()
    assert SECRET not in line


def test_missing_driver_prints_the_settings_and_the_remedy() -> None:
    script = (
        "import sys; sys.modules['redis'] = None\n"
        "from holdfast.cli.main import main; sys.exit(main(['config', '--url', 'redis://h']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 78
    assert "redis://h" in done.stdout
    assert done.stderr.startswith("holdfast: the redis engine needs its driver: pip install ")


@pytest.mark.parametrize(
    "url, shown",
    [
        ("redis://h", "redis://h"),
        (f"redis://joe:{SECRET}@h:1/0", "redis://joe:***@h:1/0"),
        (f"redis://:{SECRET}@h", "redis://:***@h"),
        (f"redis://{SECRET}@h", "redis://***@h"),
        (f"redis://joe:a@{SECRET}@h", "redis://joe:***@h"),
        (f"redis://h?password={SECRET}&ttl=5", "redis://h?password=***&ttl=5"),
        (f"redis://h?passwor%64={SECRET}", "redis://h?passwor%64=***"),
        (f"unix://joe:12/{SECRET}@/s", "unix:///s"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("sqlite:///var/lib/app/locks.db?ttl=5", "sqlite:///var/lib/app/locks.db?ttl=5"),
        ("sqlite:", "sqlite:"),
        ("memory:x", "memory:x"),
    ],
)
def test_url_secrets_are_masked(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert SECRET not in masked_secret_url(url) or "sqlite" in url


def test_secret_option_names_are_recognised() -> None:
    for name in ("password", "sentinel_password", "ssl_password", "keyfile_password", "sasl_password"):
        assert is_secret(name)
    assert is_secret("auth_data")
    assert is_secret("sasl_options")
    assert is_secret("credential_provider")
    assert not is_secret("ssl_keyfile")
