"""Computes the lock name of a call without making the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import holdfast


def name_of(client: holdfast.Client, key: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    locked: Any = client.locked(key=key)(function)
    name = locked.lock_for(*args, **kwargs).name
    assert isinstance(name, str)
    return name
