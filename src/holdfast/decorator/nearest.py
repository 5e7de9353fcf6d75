"""Suggests the name that was probably meant, in errors about a parameter, a field or an option."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or the list of known names."""
    names = sorted(known)
    by_lower = {each.lower().replace("_", ""): each for each in names}
    found = difflib.get_close_matches(name.lower().replace("_", ""), by_lower, n=1)
    if found:
        return f"did you mean {by_lower[found[0]]!r}?"
    return f"known: {', '.join(map(repr, names))}" if names else "there is none"
