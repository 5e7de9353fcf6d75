"""Output to a terminal: names are data and contain no control sequences."""

from __future__ import annotations

import json
import unicodedata

import pytest

from holdfast.cli import output
from holdfast.cli.output import visible
from holdfast.cli.quoting import shell_words


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain text", "plain text"),
        ("größe 東京 🔒", "größe 東京 🔒"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\nb\r\tc\x00\x7f", r"a\nb\r\tc\x00\x7f"),
        ("\x9b2J", r"\x9b2J"),
        ("\u202egnissim\u2066", r"\u202egnissim\u2066"),
        ("a\u2028b\u2029c\u200bd\ufeff", r"a\u2028b\u2029c\u200bd\ufeff"),
        ("\udcff", r"\udcff"),
        ("\U000e0041", r"\U000e0041"),
        (r"\x1b", r"\x1b"),
    ],
)
def test_control_and_format_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_no_control_or_format_character_is_printed_raw() -> None:
    every = "".join(map(chr, range(0x110000)))
    left = {unicodedata.category(character) for character in visible(every)}
    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def test_results_and_errors_keep_only_the_newlines_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_result("one\x1b\ntwo\x9b")
    output.write_error("one\x1b\ntwo")
    output.write_notice("one\ntwo\x1b")
    assert capsys.readouterr() == ("one\\x1b\ntwo\\x9b\n", "holdfast: one\\x1b\\ntwo\none\ntwo\\x1b\n")


def test_json_is_one_ascii_line_and_round_trips(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": "a\x1b\n\x7f\x9b\u202e\u2028東\udcff\\u007f"}
    output.write_json(value)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == value


@pytest.mark.parametrize(
    "word, quoted",
    [
        ("orders", "orders"),
        ("two words", "'two words'"),
        ("it's", "'it'\"'\"'s'"),
        ("a\x1b'\\", r"$'a\u001b\'\\'"),
        ("\U000e0041", r"$'\U000e0041'"),
    ],
)
def test_words_are_quoted_for_a_shell(word: str, quoted: str) -> None:
    assert shell_words(["x", word]) == f"x {quoted}"
