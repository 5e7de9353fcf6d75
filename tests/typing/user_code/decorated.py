"""Right and wrong uses of ``locked`` and ``current_lease``."""

from collections.abc import AsyncIterator, Iterator

import holdfast

locks = holdfast.connect("memory:")
alocks = holdfast.aio.connect("memory:")


@locks.locked("{n}", prefix="x", timeout="5s", at_least=1)
def function(n: int, *, text: str = "") -> float:
    return 1.0


function(1, text="a").hex()
function("a")  # error
function()  # error
function.lock_for(1).acquire().release()
function.lock_for("a")  # error
function.__wrapped__(1)


@locks.locked
def bare(n: int) -> str:
    return ""


bare(1).upper()
bare("a")  # error


class Account:
    number = 1

    @locks.locked("{self.number}:{n}")
    def method(self, n: int) -> str:
        return ""

    @locks.locked("{n}")
    @classmethod
    def of_class(cls, n: int) -> str:
        return ""

    @staticmethod
    @locks.locked("{n}")
    def static(n: int) -> str:
        return ""


Account().method(1).upper()
Account().method("a")  # error
Account().method.lock_for(1).acquire()
Account.method(Account(), 1)
Account().of_class(1).upper()
Account.of_class(1).upper()  # error in mypy: it does not bind a class method through its class
Account.of_class("a")  # error
Account.static(1).upper()
Account.static("a")  # error


@locks.locked("s", on_busy="skip")
def skipping() -> int:
    return 1


skipping().bit_length()  # error
(skipping() or 5).bit_length()


@locks.locked("s", on_busy="skip", default=0)
def with_default() -> int:
    return 1


with_default().bit_length()
with_default.skipped().bit_length()


@locks.locked("s", on_busy="skip")
def steps() -> Iterator[int]:
    yield 1


for number in steps():
    number.bit_length()


@alocks.locked("{n}", on_busy="skip", default="x")
async def skipping_later(n: int) -> int:
    return 1


@holdfast.locked("{n}", prefix="p")
async def later(n: int) -> int:
    return 1


@holdfast.locked
async def items() -> AsyncIterator[int]:
    yield 1


@holdfast.locked(key=lambda n: n)  # error in basedpyright: what a lambda takes is unknown to it
def now(n: int) -> int:
    return 1


now.lock_for(1).acquire().release()


async def main() -> None:
    (await later(1)).bit_length()
    (await skipping_later(1)).bit_length()  # error
    await later("a")  # error
    later(1).bit_length()  # error
    await later.lock_for(1).acquire()
    async for item in items():
        item.bit_length()


locks.locked("s", tiemout=5)  # error
locks.locked("s", on_busy="ignore")  # error
locks.locked("s", default=5)  # error
holdfast.locked("s", ttl=[])  # error
locks.locked([1, 2])  # error
locks.locked([])


@locks.locked(["{source}", "{target}"], prefix="account", timeout=5)
def transfer(source: int, target: int) -> int:
    return source


moved: int = transfer(1, 2)
both: holdfast.MultiLock = transfer.lock_for(1, 2)
wrong_both: holdfast.Lock = transfer.lock_for(1, 2)  # error
with both as multi_lease:
    token_of_one: int = multi_lease.tokens["account:1"]


@alocks.locked(("{source}", "{target}"), on_busy="skip", default="")
async def transfer_async(source: int, target: int) -> int:
    return source


async_both: holdfast.aio.AsyncMultiLock = transfer_async.lock_for(1, 2)


@holdfast.locked(["{source}", "{target}"])
def transfer_by_default(source: int, target: int) -> None: ...


default_both: holdfast.MultiLock = transfer_by_default.lock_for(1, 2)

lease = holdfast.current_lease()
lease.check()  # error
if lease is not None:
    lease.check()
    lease.token.bit_length()
    bool(lease.lost)
