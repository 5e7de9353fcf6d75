"""Clients that share a memory store used only by the test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import holdfast
from tests.support.leaks import close_open_clients


@pytest.fixture
def url() -> str:
    return f"memory:{uuid.uuid4().hex}"


@pytest.fixture
def client(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[holdfast.Client]:
    """Another client on the same store, standing for another process."""
    with holdfast.connect(url) as client:
        yield client


@pytest.fixture(autouse=True, scope="module")
def _end_clients() -> Iterator[None]:
    """Module-level functions and locks with a timeout keep their clients alive: end the threads of those clients."""
    yield
    close_open_clients()
