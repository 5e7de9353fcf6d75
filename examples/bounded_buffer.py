"""Producers and consumers in several processes share a buffer that has room for ten items.

The buffer is a monitor: shared variables, and the only operations on them. One operation runs at a time, in any
process; one that has to wait lets others run meanwhile.

``python examples/bounded_buffer.py``
"""

from __future__ import annotations

import multiprocessing

import holdfast

ITEMS = 60


class Buffer(holdfast.Monitor):
    items: list[int] = []  # noqa: RUF012
    not_empty = holdfast.condition()
    not_full = holdfast.condition()

    @holdfast.synchronized
    def put(self, item: int) -> None:
        self.not_full.wait_for(lambda: len(self.items) < 10)
        self.items.append(item)
        self.not_empty.notify()

    @holdfast.synchronized
    def take(self) -> int:
        self.not_empty.wait_for(lambda: self.items)
        item = self.items.pop(0)
        self.not_full.notify()
        return item


def produce(items: range) -> None:
    """One process's share. It connects by itself: a client is not for handing around."""
    with holdfast.connect() as locks:
        buffer = Buffer(locks, "orders")
        for item in items:
            buffer.put(item)


def consume(count: int) -> list[int]:
    with holdfast.connect() as locks:
        buffer = Buffer(locks, "orders")
        return [buffer.take() for _ in range(count)]


def main() -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        consumers = [pool.apply_async(consume, (ITEMS // 2,)) for _ in range(2)]
        producers = [pool.apply_async(produce, (range(start, ITEMS, 2),)) for start in range(2)]
        for producer in producers:
            producer.get()
        taken = [item for consumer in consumers for item in consumer.get()]
        pool.close()
        pool.join()
    print(f"{len(set(taken))} of {ITEMS} items, {len(taken) - len(set(taken))} of them twice")


if __name__ == "__main__":
    main()
