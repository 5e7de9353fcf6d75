"""Clients that share a memory store used only by the test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import holdfast


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
