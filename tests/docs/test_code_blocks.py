"""Every code block of every document is run or checked."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import holdfast
from holdfast import default_clients
from holdfast._config.options import ClientOptions
from holdfast._config.settings import resolve_default
from holdfast.cli.command import commands
from holdfast.engines.memory import engine as memory
from holdfast.engines.sqlite.paths import default_path
from tests.docs.blocks import MARKS, Document
from tests.docs.markdown import ROOT, Block, blocks, documents, shown

#: Text in the documents, and its replacement during the tests.
STATE: Final = "/var/lib/app"
#: The same for servers: the fixture that starts them and its attribute with the URL. Documents that only connect omit
#: ports: connecting does no I/O and needs no server.
SERVERS: Final = {
    "redis://localhost:6379": ("redis_server", "url"),
    "redis+sentinel://s1:26379,s2:26379,s3:26379/mymaster": ("sentinel_set", "url"),
    "redis+cluster://c1:7000,c2:7000,c3:7000": ("redis_cluster", "url"),
    "redlock://r1:6379,r2:6379,r3:6379,r4:6379,r5:6379": ("five_masters", "url"),
    "z1:2181,z2:2181,z3:2181": ("zookeeper_server", "address"),
    "shop@localhost:5432/shop": ("postgres_server", "location"),
}

LANGUAGES: Final = frozenset({"python", "console", "sh", "toml", "text", "java"})
#: Commands of other projects that documents may name besides make, pip and holdfast.
FOREIGN_COMMANDS: Final = frozenset({"redis-cli", "export"})

ALL_BLOCKS: Final = [block for path in documents() for block in blocks(path)]


def _of(language: str) -> list[Block]:
    return [block for block in ALL_BLOCKS if block.language == language]


def _documents_with_python() -> list[Any]:
    """Returns documents as parameters; only those that use servers are marked as needing them."""
    return [
        pytest.param(path, id=shown(path), marks=_needs(path))
        for path in dict.fromkeys(block.path for block in _of("python"))
    ]


def _needs(path: Path) -> list[pytest.MarkDecorator]:
    fixtures = {fixture for fixture, _ in _servers(path).values()}
    others = {"zookeeper_server": pytest.mark.needs_zookeeper, "postgres_server": pytest.mark.needs_postgres}
    needed = [pytest.mark.needs_redis] if fixtures - set(others) else []
    return [*needed, *(mark for fixture, mark in others.items() if fixture in fixtures)]


def _servers(path: Path) -> dict[str, tuple[str, str]]:
    """Returns the servers that the Python blocks of a document use: text, fixture, and attribute."""
    text = "".join(block.text for block in blocks(path) if block.language == "python")
    return {written: server for written, server in SERVERS.items() if written in text}


@pytest.fixture
def as_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Removes HOLDFAST_* settings and locks of other documents, and sets a home directory for the default lock file."""
    monkeypatch.setattr(memory, "_stores", {})
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    real = pwd.getpwuid
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd((*real(uid)[:5], str(home), real(uid)[6])))
    assert default_path().startswith(str(home))
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    holdfast.configure()
    default_clients._sync.clear()  # of @holdfast.locked: its threads would keep running


@pytest.mark.parametrize("path", _documents_with_python())
@pytest.mark.usefixtures("as_another_user")
def test_python_blocks_run(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    substitutions = {STATE: str(state)}
    for written, (fixture, attribute) in _servers(path).items():
        substitutions[written] = getattr(request.getfixturevalue(fixture), attribute).removesuffix("/0")
    with Document(tmp_path, substitutions) as document:
        for block in blocks(path):
            if block.language == "python":
                document.run(block)


@pytest.mark.parametrize("block", ALL_BLOCKS, ids=str)
def test_languages_and_marks_are_known(block: Block) -> None:
    assert block.language in LANGUAGES, "an unknown language would not be tested"
    assert set(block.marks) <= (MARKS if block.language == "python" else set())
    assert block.text.strip()


# ---- commands


def _command_lines(block: Block) -> list[str]:
    """Returns what a reader would type: all of ``sh``; in ``console`` the lines that begin with a prompt."""
    lines = block.text.splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        assert lines, "a console block without a line that begins with '$ '"
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _check_make(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert words[1] in targets


def _check_pip(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert words[1] == "install"
    for package in words[2:]:
        name, _, extra = package.partition("[")
        assert name == ".", "until it is published, a checkout is installed"
        assert not extra or set(extra.rstrip("]").split(",")) <= set(extras)


def _check_holdfast(words: list[str]) -> None:
    assert words[1] in commands()


def _check_python(words: list[str]) -> None:
    if words[1] == "-m":
        assert words[2] in ("pytest", "tests.simulation")
    else:
        assert (ROOT / words[1]).is_file()


CHECKS: Final[dict[str, Callable[[list[str]], None]]] = {
    "make": _check_make,
    "pip": _check_pip,
    "holdfast": _check_holdfast,
    "python": _check_python,
}


@pytest.mark.parametrize("block", [*_of("console"), *_of("sh")], ids=str)
def test_commands_exist(block: Block) -> None:
    for line in _command_lines(block):
        words = shlex.split(line, comments=True)
        while re.fullmatch(r"[A-Z_]+=.*", words[0]):
            _check_variable(words.pop(0))
        if words[0] == "export":
            _check_variable(words[1])
        assert words[0] in CHECKS.keys() | FOREIGN_COMMANDS, f"what is {words[0]!r}?"
        if words[0] in CHECKS:
            CHECKS[words[0]](words)


def _check_variable(assignment: str) -> None:
    name = assignment.partition("=")[0]
    own = {f"HOLDFAST_{field.upper()}" for field in ClientOptions.__dataclass_fields__}
    assert name in own | {"HOLDFAST_URL", "HOLDFAST_URL_FILE", "HOLDFAST_CONFIG", "HOLDFAST_PROFILE"}


# ---- settings files


@pytest.mark.parametrize("block", _of("toml"), ids=str)
def test_settings_files_are_valid(block: Block, tmp_path: Path) -> None:
    file, secret = tmp_path / "holdfast.toml", tmp_path / "locks_url"
    secret.write_text("redis://h\n")
    file.write_text(block.text.replace("/run/secrets/locks_url", str(secret)), "utf-8")
    profiles = tomllib.loads(block.text).get("profiles", {})
    for chosen in [{}, *({"HOLDFAST_PROFILE": name} for name in profiles)]:
        assert resolve_default({"HOLDFAST_CONFIG": str(file)} | chosen).source == "file"
