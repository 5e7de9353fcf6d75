"""Type checking of user code: mypy runs over right and wrong calls."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from mypy import api

CODE = """
    from collections.abc import AsyncIterator, Iterator
    import holdfast

    locks = holdfast.connect("memory:")
    alocks = holdfast.aio.connect("memory:")

    @locks.locked("{n}", prefix="x", timeout="5s", at_least=1)
    def function(n: int, *, text: str = "") -> float: return 1.0

    function(1, text="a").hex()
    function("a")  # error
    function()  # error
    function.lock_for(1).acquire().release()
    function.lock_for("a")  # error
    function.__wrapped__(1)

    @locks.locked
    def bare(n: int) -> str: return ""

    bare(1).upper()
    bare("a")  # error

    class Account:
        number = 1

        @locks.locked("{self.number}:{n}")
        def method(self, n: int) -> str: return ""

    Account().method(1).upper()
    Account().method("a")  # error
    Account().method.lock_for(1).acquire()
    Account.method(Account(), 1)

    @locks.locked("s", on_busy="skip")
    def skipping() -> int: return 1

    skipping().bit_length()  # error
    (skipping() or 5).bit_length()

    @locks.locked("s", on_busy="skip", default=0)
    def with_default() -> int: return 1

    with_default().bit_length()
    with_default.skipped().bit_length()

    @locks.locked("s", on_busy="skip")
    def steps() -> Iterator[int]: yield 1

    for number in steps(): number.bit_length()

    @alocks.locked("{n}", on_busy="skip", default="x")
    async def skipping_later(n: int) -> int: return 1

    @holdfast.locked("{n}", prefix="p")
    async def later(n: int) -> int: return 1

    @holdfast.locked
    async def items() -> AsyncIterator[int]: yield 1

    @holdfast.locked(key=lambda n: n)
    def now(n: int) -> int: return 1

    now.lock_for(1).acquire().release()

    async def main() -> None:
        (await later(1)).bit_length()
        (await skipping_later(1)).bit_length()  # error
        await later("a")  # error
        later(1).bit_length()  # error
        await later.lock_for(1).acquire()
        async for item in items(): item.bit_length()

    locks.locked("s", tiemout=5)  # error
    locks.locked("s", on_busy="ignore")  # error
    locks.locked("s", default=5)  # error
    holdfast.locked("s", ttl=[])  # error
    alocks.locked(["a", "b"])  # error

    lease = holdfast.current_lease()
    lease.check()  # error
    if lease is not None:
        lease.check()
        lease.token.bit_length()
        bool(lease.lost)
"""


def test_mypy_accepts_right_calls_and_rejects_wrong_ones(tmp_path: Path) -> None:
    module = tmp_path / "users_module.py"
    module.write_text(textwrap.dedent(CODE), "utf-8")
    printed, _, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(module)])
    found = {int(line) for line in re.findall(r"users_module\.py:(\d+): error:", printed)}
    lines = module.read_text("utf-8").splitlines()
    wanted = {number for number, line in enumerate(lines, 1) if "# error" in line}
    assert found == wanted, printed
