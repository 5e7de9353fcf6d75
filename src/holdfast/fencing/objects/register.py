"""One value per key, guarded by its head: the algorithm, once for sync and async.

Load: raise the head to the caller's token, *then* read. Store: write the value to a new object, then make the head
point to it, if the head still has the caller's token. Between the two no older holder can write: its conditional write
expects an earlier head, and fails.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, NoReturn

from holdfast.errors import EngineRefused, EngineUnavailable, LockError, OutcomeUnknown, UsageError
from holdfast.fencing.objects.head import Head, abandoned, data_path, decode, encode, head_path, new_target
from holdfast.fencing.objects.port import Conflict, Found, Port
from holdfast.fencing.rule import Bearer, admit

# Conflicts are rare: while the lock works there is only one writer, and readers do not change the head.
_ATTEMPTS: Final = 8
# Unanswered requests before giving up. obstore has already repeated each of them, by default for minutes.
_UNANSWERED: Final = 2
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5


class _Current(NamedTuple):
    """The head as it was read; None: the key has none yet."""

    head: Head | None
    found: Found | None

    @property
    def bearer(self) -> Bearer | None:
        return None if self.head is None else self.head.bearer


class Register:
    """The keys of one store."""

    def __init__(self, port: Port) -> None:
        self._port = port

    async def raise_guard(self, key: str, incoming: Bearer) -> Head | None:
        """Make ``incoming`` the head's bearer and keep the value. May be repeated. Raises StaleToken.

        A reader's leaves the head as it is; None if there is none.
        """
        unanswered = 0
        for pause in _pauses():
            if pause:
                await self._port.sleep(pause)
            current = await self._current(key)
            raises = admit(key, current.bearer, incoming)
            if incoming.reads or (current.head is not None and not raises):
                return current.head
            head = Head.first(incoming) if current.head is None else current.head.raised(incoming)
            try:
                await self._swap(key, current, head)
                return head
            except Conflict:
                pass  # read again: it may have been our own write
            except EngineUnavailable:
                unanswered += 1
                if unanswered == _UNANSWERED:
                    raise
        raise _gave_up(key)

    async def load(self, key: str, incoming: Bearer) -> bytes | None:
        """Raise the head, then read the value."""
        for pause in _pauses():
            if pause:
                await self._port.sleep(pause)
            head = await self.raise_guard(key, incoming)
            if head is None:
                return None
            value = await self._value(key, head)
            if not isinstance(value, _Gone):
                return value
        raise _gave_up(key)

    async def read(self, key: str) -> bytes | None:
        """The value, without a token: the head stays as it is."""
        for pause in _pauses():
            if pause:
                await self._port.sleep(pause)
            head = (await self._current(key)).head
            if head is None:
                return None
            value = await self._value(key, head)
            if not isinstance(value, _Gone):
                return value
        raise _gave_up(key)

    async def store(self, key: str, data: Any, incoming: Bearer) -> None:
        """Replace the value; ``data`` None removes it. The head must have been raised by ``incoming``."""
        if incoming.reads:
            raise UsageError(f"a read lease cannot change {key!r}: store with the lease of the write lock")
        current = await self._current(key)
        self._require(key, current, incoming)  # also before a long upload
        await self._point_to(key, current, data, incoming)

    async def verify(self, key: str) -> None:
        """Test whether the store supports conditional writes; EngineRefused if it does not."""
        path = data_path(key, f"probe-{uuid.uuid4().hex}")
        await self._port.swap(path, b"1", None)
        try:
            first = await self._port.get(path)
            await self._expect_conflict(path, None)
            await self._port.swap(path, b"2", first)
            await self._expect_conflict(path, first)
        except Conflict as error:
            raise EngineRefused(f"the object store refused a condition that was met, for {path!r}") from error
        finally:
            await self._port.delete(path)

    async def sweep(self, key: str) -> int:
        """Remove objects of refused and dead writers. Returns how many."""
        head = (await self._current(key)).head
        if head is None:
            return 0  # a writer may be about to create the head
        removed = 0
        for path in await self._port.list(key):
            if abandoned(path.rpartition("/")[2], head):
                await self._port.delete(path)
                removed += 1
        return removed

    # ---- internal

    async def _point_to(self, key: str, current: _Current, data: Any, incoming: Bearer) -> None:
        """Write ``data`` to a new object, make it the last write, and remove the object of the previous one."""
        lost: list[EngineUnavailable] = []  # requests that may or may not have arrived
        obsolete: set[str] = set()
        ours = [await self._upload(key, data, incoming)]
        expected: Head | None = None  # what the last attempt would have replaced
        for pause in _pauses():
            if pause:
                await self._port.sleep(pause)
                current = await self._look_again(key)
            if current.head is not None and any(current.head.names(target) for target in ours):
                head = current.head
                break  # an attempt whose reply was lost
            # After more than one write since, ours may have been one of them, with its object removed by now.
            maybe_written = expected is not None and (current.head is None or not current.head.follows(expected))
            refused = current.head is None or current.bearer != incoming
            if len(lost) == _UNANSWERED or (refused and (lost or maybe_written)):
                # Our last object stays: a request that is still on its way may make it the value.
                raise _unknown(key) from (lost[-1] if lost else None)
            if current.head is None or refused:
                await self._refuse(key, current, ours, incoming)
            if maybe_written:
                ours.append(await self._upload_again(key, data, incoming))
            expected = current.head
            head = expected.written(ours[-1], deleted=data is None)
            if head.previous is not None:
                obsolete.add(head.previous)
            try:
                await self._swap(key, current, head)
                break
            except Conflict:
                pass
            except EngineUnavailable as error:
                lost.append(error)
        else:
            raise _unknown(key) from (lost[-1] if lost else None)  # the last conflict may be with our own write
        for name in {*obsolete, *ours} - {head.target}:
            await self._discard(key, name)

    async def _upload(self, key: str, data: Any, incoming: Bearer) -> str:
        """The name of a new write; its object is there, unless it is a deletion."""
        target = new_target(incoming.token)
        if data is not None:
            await self._port.put(data_path(key, target), data)
        return target

    async def _upload_again(self, key: str, data: Any, incoming: Bearer) -> str:
        try:
            return await self._upload(key, data, incoming)
        except EngineUnavailable as error:
            raise _unknown(key) from error  # about the earlier attempt

    async def _look_again(self, key: str) -> _Current:
        """The head after an attempt to replace it. Without it, nothing is known about that attempt."""
        try:
            return await self._current(key)
        except EngineUnavailable as error:
            raise _unknown(key) from error

    async def _refuse(self, key: str, current: _Current, ours: list[str], incoming: Bearer) -> NoReturn:
        """Remove our objects and raise: the head got another bearer before our write."""
        for target in ours:
            await self._discard(key, target)
        self._require(key, current, incoming)
        raise AssertionError("a head of another bearer was accepted")

    async def _expect_conflict(self, path: str, expected: Found | None) -> None:
        try:
            await self._port.swap(path, b"3", expected)
        except Conflict:
            return
        raise EngineRefused(f"the object store ignores conditional writes (tried on {path!r}): no fence is possible")

    def _require(self, key: str, current: _Current, incoming: Bearer) -> None:
        if admit(key, current.bearer, incoming):
            raise UsageError(
                f"store to {key!r} before a load with this lease: an older holder could still have written between "
                "your read and this. Call load() or check() first, before you read anything"
            )

    async def _current(self, key: str) -> _Current:
        found = await self._port.get(head_path(key))
        if found is None:
            return _Current(None, None)
        try:
            return _Current(decode(key, found.body), found)
        except ValueError as error:
            raise EngineRefused(
                f"the fence of {key!r} cannot be read, so every token is refused: the object {head_path(key)!r} is "
                f"damaged, or another program's ({error}). Restore it"
            ) from error

    async def _swap(self, key: str, current: _Current, head: Head) -> None:
        await self._port.swap(head_path(key), encode(key, head), current.found)

    async def _value(self, key: str, head: Head) -> bytes | _Gone | None:
        """The value that ``head`` points to; ``_Gone`` if a newer one has replaced it meanwhile."""
        if head.target is None or head.deleted:
            return None
        found = await self._port.get(data_path(key, head.target))
        if found is not None:
            return found.body
        now = (await self._current(key)).head
        if now is not None and now.target == head.target:
            raise EngineRefused(f"the value of {key!r} was removed by another program: {head.target!r}. Restore it")
        return _Gone()

    async def _discard(self, key: str, target: str) -> None:
        """Remove an object if possible; ``sweep`` removes the rest. An error here must not hide the call's result."""
        try:
            await self._port.delete(data_path(key, target))
        except LockError:
            pass


class _Gone:
    """The object was removed after its head had been read."""


def _pauses() -> Iterator[float]:
    """The pause before each attempt; none before the first. Jitter keeps competing writers from staying in step."""
    yield 0.0
    pause = _FIRST_PAUSE
    for _ in range(_ATTEMPTS - 1):
        yield pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _gave_up(key: str) -> EngineUnavailable:
    return EngineUnavailable(f"the head of {key!r} kept changing in {_ATTEMPTS} attempts; nothing was written")


def _unknown(key: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"it is unknown whether the write to {key!r} took effect: the object store did not answer. Acquire the lock "
        "again and load the value, which is then definite",
        operation="store",
        name=key,
    )
