"""A URL in a separate file: HOLDFAST_URL_FILE, and ``url_file`` in the settings file."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast._config.settings import configure, resolve_default
from holdfast.errors import UsageError
from tests.config.settings_file import write

SECRET = "s3cr3t"
URL = f"redis://joe:{SECRET}@h"


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    configure()
    yield
    configure()


def secret(folder: Path, content: str | bytes = URL) -> Path:
    path = folder / "locks_url"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_trailing_newlines_of_the_url_file_are_removed(tmp_path: Path, start: str, end: str) -> None:
    path = secret(tmp_path, f"{start}{URL}{end}")
    found = resolve_default({"HOLDFAST_URL_FILE": str(path), "HOLDFAST_TTL": "5"})
    assert found[:3] == (URL, {"ttl": 5.0}, "environment")
    assert found.origins["url"] == f"file '{path}' (environment variable HOLDFAST_URL_FILE)"


def test_url_file_comes_before_the_settings_file(tmp_path: Path) -> None:
    environment = write(tmp_path, "url = 'memory:f'") | {"HOLDFAST_URL_FILE": str(secret(tmp_path))}
    assert resolve_default(environment).url == URL


def test_connect_reads_the_url_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL_FILE", str(secret(tmp_path, "memory:")))
    assert holdfast.connect()._engine.scheme == "memory"


def test_url_file_is_read_for_each_connect(tmp_path: Path) -> None:
    """Mounted secrets are replaced while the program runs."""
    environment = {"HOLDFAST_URL_FILE": str(secret(tmp_path, "memory:a"))}
    assert resolve_default(environment).url == "memory:a"
    secret(tmp_path, "memory:b")
    assert resolve_default(environment).url == "memory:b"


def test_url_file_in_a_profile_is_read(tmp_path: Path) -> None:
    path = secret(tmp_path)
    environment = write(tmp_path, f"profile = 'a'\nttl = 5\n[profiles.a]\nurl_file = '{path}'")
    found = resolve_default(environment)
    assert found[:3] == (URL, {"ttl": 5}, "file")
    assert found.origins["url"] == f"file '{path}' (url_file in file '{environment['HOLDFAST_CONFIG']}' [profiles.a])"


def test_relative_url_file_is_relative_to_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "locks_url").write_text("memory:trap")
    monkeypatch.chdir(elsewhere)
    environment = write(tmp_path, "url_file = 'locks_url'")
    assert resolve_default(environment).url == URL
    assert resolve_default({"HOLDFAST_CONFIG": os.path.relpath(environment["HOLDFAST_CONFIG"])}).url == URL


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "is empty"),
        ("\n", "is empty"),
        (" \n", "is empty"),
        (f"{URL}\n{URL}\n", "has several lines"),
        (f"{URL}\u2028x", "has several lines"),
        (URL.encode() + b"\xff", "is not UTF-8"),
        (SECRET * 20_000, "is longer than 64 KiB"),
        (SECRET, "not a URL that holdfast knows"),
        (f"rediis://joe:{SECRET}@h", "unknown URL scheme 'rediis'"),
        (f"redis://joe:{SECRET}@h:x", "port"),
        (f" {URL}", "white space"),
        (f"{URL}\0", "control character"),
    ],
)
def test_refused_content_is_not_shown(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = secret(tmp_path, content)
    for environment, name in (
        ({"HOLDFAST_URL_FILE": str(path)}, "HOLDFAST_URL_FILE"),
        (write(tmp_path, f"url_file = '{path}'"), "HOLDFAST_CONFIG"),
    ):
        with pytest.raises(UsageError) as caught:
            resolve_default(environment)
        assert message in str(caught.value)
        assert name in str(caught.value)
        chain = [caught.value, caught.value.__cause__]
        assert SECRET not in repr(chain) + "".join(map(str, chain))


def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\(HOLDFAST_URL_FILE\) cannot be read: No such file"):
        resolve_default({"HOLDFAST_URL_FILE": str(tmp_path / "nowhere")})
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        resolve_default({"HOLDFAST_URL_FILE": str(tmp_path)})


@pytest.mark.parametrize("variable", ["HOLDFAST_URL_FILE", "HOLDFAST_CONFIG"])
def test_named_pipe_without_a_writer_does_not_block(tmp_path: Path, variable: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is empty" if variable == "HOLDFAST_URL_FILE" else "names no url"):
        resolve_default({variable: str(pipe)})


def test_pipe_with_a_writer_is_read_to_its_end() -> None:
    """As with ``HOLDFAST_URL_FILE=<(command)``."""
    reading, writing = os.pipe()

    def write_in_two_parts() -> None:
        os.write(writing, URL[:9].encode())
        os.write(writing, URL[9:].encode() + b"\n")
        os.close(writing)

    writer = threading.Timer(0.05, write_in_two_parts)
    writer.start()
    try:
        assert resolve_default({"HOLDFAST_URL_FILE": f"/dev/fd/{reading}"}).url == URL
    finally:
        writer.join()
        os.close(reading)


@pytest.mark.parametrize(
    "text, message", [("url_file = 5", "url_file is not a text"), ('url_file = "a\\u0000b"', "this is no path")]
)
def test_url_file_that_is_no_path_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_default(write(tmp_path, text))
