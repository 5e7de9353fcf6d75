"""Quotes words for a shell, without control characters that a terminal would act on."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def shell_words(words: Iterable[str]) -> str:
    """One line for a shell. Words with control characters are written ``$'…'``, which bash, zsh and ksh read."""
    return " ".join(shlex.quote(word) if word.isprintable() else _ansi(word) for word in words)


def _ansi(word: str) -> str:
    return "$'" + "".join(_character(character) for character in word) + "'"


def _character(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
