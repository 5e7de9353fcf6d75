"""How a policy presents itself."""

from __future__ import annotations

import holdfast


def test_repr_has_the_mode_unless_it_is_the_usual_one() -> None:
    with holdfast.connect("memory:") as locks:
        rwlock = locks.rwlock("a")
        assert repr(locks.lock("a")).startswith("<Lock 'a' of ")
        assert repr(rwlock.read).startswith("<Lock 'a' (read) of ")
        with rwlock.write as lease:
            assert repr(lease) == f"<Lease 'a' (write) token={lease.token} held>"
        with locks.semaphore("s", 3) as permit:
            assert repr(permit) == f"<Lease 's' (permits) token={permit.token} held>"
