"""Closing waits for the observer for as long as a busy machine needs."""

from __future__ import annotations

import pytest

from holdfast.observer import reports


@pytest.fixture(autouse=True)
def _all_events_are_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests read what the observer got once the client is closed. If the machine stalls for half a second, the last
    events would come after that."""
    monkeypatch.setattr(reports, "FLUSH_WITHIN", 10.0)
