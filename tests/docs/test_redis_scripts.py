"""The page about the scripts of the Redis engine says what the scripts say, and the wire format names all of them."""

from __future__ import annotations

from tests.docs.markdown import ROOT
from tools import redis_scripts

REFERENCE = ROOT / "docs" / "reference"


def test_contracts_of_scripts_are_those_of_the_lua_files() -> None:
    page = (REFERENCE / "redis-scripts.md").read_text("utf-8")
    assert page == redis_scripts.page(), "python -m tools.redis_scripts writes it"


def test_every_script_states_its_keys_arguments_reply_and_what_a_repeat_does() -> None:
    for name, comment in redis_scripts.scripts():
        for word in ("KEYS ", "ARGV ", "Returns "):
            assert word in comment, f"{name}: {word}"
        assert "dempotent" in comment or " repeat" in comment, name
