"""Forks while a lock is held; the child inspects the lease, tries the lock, acquires another one and exits.

Both processes print their observations.
"""

from __future__ import annotations

import os
import sys
import warnings

import holdfast
from holdfast._runtime import clock
from tests.zookeeper.support import LASTING, until_renewed

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # intended: the test forks


def main(url: str) -> None:
    locks = holdfast.connect(url, ttl=LASTING)
    lease = locks.lock("a").acquire()
    child = os.fork()
    if child == 0:
        # Closing the session on the inherited connection would end the parent's session.
        seen = [lease.lost_reason, locks.lock("a").try_acquire() is not None]
        with locks.lock("b") as own:
            seen.append(own.held)
        locks.close()
        print(*seen, flush=True)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    until_renewed(lease, since=clock.now())
    print(lease.held, os.waitstatus_to_exitcode(status))
    lease.release()
    locks.close()


if __name__ == "__main__":
    main(sys.argv[1])
