"""The label that a user gives to a client: which texts are valid. Pure."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 100
#: Unicode categories that a label must not have: control and format characters (among them the bidirectional
#: overrides, by which a label could be displayed as another one), line and paragraph separators, lone surrogates.
_REFUSED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def check_label(label: str) -> str:
    """A label, or the error that says what is wrong with it: ValueError, or TypeError if it is not a text."""
    if not isinstance(label, str):
        raise TypeError(f"label is a {type(label).__name__}: give a text")
    if not 1 <= len(label) <= _LONGEST:
        raise ValueError(f"label has {len(label)} characters: give 1 to {_LONGEST}")
    from unicodedata import category  # here, not above: few programs give a label

    for character in label:
        if category(character) in _REFUSED:
            raise ValueError(f"label contains U+{ord(character):04X}, a control character: give printable text")
    return label
