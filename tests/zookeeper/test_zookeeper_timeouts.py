"""The session timeout that is used for a lock with a given ttl."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.zookeeper.timeouts import session_timeout


@given(st.floats(0.1, 604800.0), st.floats(0.1, 604800.0))
def test_a_session_is_never_longer_than_the_ttl_and_at_most_a_quarter_shorter(ttl: float, longest: float) -> None:
    timeout = session_timeout(ttl, longest)
    assert timeout <= ttl + 0.001  # whole milliseconds on the wire
    assert timeout <= longest
    if ttl < longest:
        assert timeout >= 0.74 * ttl
    else:
        assert timeout == longest


@pytest.mark.parametrize("ttl", [0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 60, 120, 600])
def test_usual_ttls_are_kept(ttl: float) -> None:
    assert session_timeout(ttl, 1000.0) == ttl


def test_all_ttls_that_servers_allow_by_default_need_ten_sessions() -> None:
    timeouts = {session_timeout(milliseconds / 1000, 30.0) for milliseconds in range(4000, 40000)}
    assert timeouts == {4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0, 30.0}
