"""The description of a claim's caller: how it is written and read back."""

from __future__ import annotations

import json
import os
import platform
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._runtime.description import Description, program
from holdfast.engines import descriptions
from holdfast.engines.base import Holder


def test_a_description_reads_back_as_it_was_written() -> None:
    text = Description("billing").of("worker-1")
    facts = descriptions.facts(descriptions.parsed(text))
    assert facts == {
        "host": platform.node(),
        "pid": os.getpid(),
        "thread": "worker-1",
        "program": program(),
        "label": "billing",
    }
    assert Holder("owner", **facts).label == "billing"


def test_without_a_label_none_is_written() -> None:
    assert "label" not in json.loads(Description(None).of("t"))


@given(st.text(st.characters(), max_size=300), st.text(min_size=1, max_size=100))
def test_any_name_of_a_thread_is_written_as_ascii_and_bounded(thread: str, label: str) -> None:
    text = Description(label).of(thread)
    assert text.isascii()
    assert len(text) <= 4096
    assert json.loads(text)["thread"] == thread[:100]
    assert json.loads(text)["label"] == label


@pytest.mark.parametrize(
    "argv, expected",
    [
        (["/srv/app/serve.py", "--password=s3cret"], "serve.py"),
        (["/usr/lib/python3/pytest/__main__.py", "-q"], "pytest"),
        (["__main__.py"], "__main__.py"),
        (["-c", "s3cret"], "python"),
        (["-m"], "python"),
        ([""], "python"),
        ([], "python"),
    ],
)
def test_a_program_is_named_without_path_and_arguments(
    argv: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert program() == expected
    assert b"s3cret" not in Description(None).of("t")


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"not JSON",
        b"[" * 100_000,
        b"[1]",
        b'{"host": 5, "pid": true, "thread": null, "program": ["p"], "label": {}}',
        b'{"pid": -1}',
        b'{"pid": 4294967296}',
        b'{"pid": "7"}',
        b'{"host": "%b"}' % (b"x" * 257),
        b'{"host": "h", "rest": "%b"}' % (b"x" * 4096),
    ],
)
def test_an_invalid_description_gives_no_facts(written: bytes) -> None:
    assert descriptions.facts(descriptions.parsed(written)) == {}
