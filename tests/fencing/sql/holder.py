"""A holder in its own process: it loads under the lock, waits for a line, and stores what it computed.

``python -m tests.fencing.sql.holder KIND PLACE LOCKS fenced|bare``, where LOCKS is the URL of the lock engine.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast
from tests.fencing.sql.stores import Store, open_store

LOAD = "SELECT amount FROM stock"


async def hold(store: Store, locks_url: str, fenced: bool) -> None:
    with holdfast.connect(locks_url) as locks:
        lease = locks.lock("stock", ttl=0.3).acquire(timeout=20)
        async with store.begin() as work:
            if fenced:
                await work.check("stock", lease)
            ((amount,),) = await work.run(LOAD)
        print("loaded", amount, flush=True)
        sys.stdin.readline()  # frozen here, past its lease
        try:
            async with store.begin() as work:
                if fenced:
                    await work.check("stock", lease)
                await work.run(f"UPDATE stock SET amount = {amount - 1}")
            print("stored", flush=True)
        except holdfast.StaleToken as stale:
            print("refused", stale.token, stale.seen, flush=True)


def main(kind: str, place: str, locks_url: str, mode: str) -> None:
    if kind == "django":
        from tests.fencing.sql.django_site import DjangoStore

        store: Store = DjangoStore(place)
    else:
        store = open_store(kind, place)
    asyncio.run(hold(store, locks_url, mode == "fenced"))


if __name__ == "__main__":
    main(*sys.argv[1:])
