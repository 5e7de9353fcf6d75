"""Removes what would make two runs of one seed differ: real randomness, object addresses, the garbage collector."""

from __future__ import annotations

import gc
import logging
import os
import random
import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from holdfast._core.grant import Grant
from holdfast.engines.redis.waiting import seats

_log: Final = logging.getLogger("holdfast")


class _Errors(logging.Handler):
    """Keeps the errors that the library logs: each of them fails the seed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def _hash_of_grant(grant: Grant) -> int:
    # Sets of grants are iterated in the order of their hashes, which by default depend on addresses.
    return int(grant.attempt.owner.rpartition(":")[2])


@contextmanager
def deterministic(seed: int | str) -> Iterator[list[logging.LogRecord]]:
    """Within the block the same seed gives the same run. Yields the errors that the library logs."""
    dice = random.Random(f"{seed}/urandom")
    state, errors, level, propagate = random.getstate(), _Errors(), _log.level, _log.propagate
    collecting = gc.isenabled()
    gc.disable()
    random.seed(f"{seed}/jitter")
    _log.addHandler(errors)
    _log.setLevel(logging.ERROR)
    _log.propagate = False
    try:
        with (
            warnings.catch_warnings(action="ignore", category=ResourceWarning),  # users forget leases on purpose
            mock.patch.object(os, "urandom", dice.randbytes),
            mock.patch.object(secrets, "token_hex", lambda size: dice.randbytes(size).hex()),
            mock.patch.object(Grant, "__hash__", _hash_of_grant),
            mock.patch.object(seats, "wall_clock", return_value=1_800_000_000.0),
        ):
            yield errors.records
    finally:
        _log.removeHandler(errors)
        _log.setLevel(level)
        _log.propagate = propagate
        random.setstate(state)
        if collecting:
            gc.enable()
