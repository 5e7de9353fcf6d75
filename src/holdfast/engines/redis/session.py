"""The Redis engine at work: each operation is one script. Written once, on a channel and a runtime."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import Final

from holdfast._runtime.base import Runtime, Wakeup
from holdfast.engines.base import (
    ALL_NAMES,
    Busy,
    Claim,
    Found,
    Granted,
    LockState,
    RequestFailed,
    Suspects,
    Withdrawn,
)
from holdfast.engines.redis.connections.channel import Channel
from holdfast.engines.redis.dialect import metadata
from holdfast.engines.redis.dialect.keys import is_side_key, keys_of, names_of, pattern
from holdfast.engines.redis.dialect.packing import Argument
from holdfast.engines.redis.dialect.replies import Answer, NotALock, WaitRefused, WrongType
from holdfast.engines.redis.dialect.requests import Arguments, Call, Closing, Plain, Publish, unacknowledged
from holdfast.engines.redis.scripts import ACQUIRE, BREAK, HELD, INSPECT, PING, RELEASE, RENEW
from holdfast.engines.redis.waiting.contender import RedisContender
from holdfast.errors import EngineRefused

#: Renewed by one script: a longer one would keep the server from everybody else for too long.
CHUNK: Final = 200
_SCAN_COUNT: Final = 500
_CLOSINGS_CAP: Final = 256
#: A tombstone outlives any duplicate of its claim, and the claim's own lease.
_TOMBSTONE: Final = 60.0

#: A ttl in seconds that never extends a lease.
_ONLY_ASK: Final = 0.001

FOUND: Final = {1: Found.OURS, 0: Found.GONE, -1: Found.STOLEN}


class RedisSession:
    """See :class:`holdfast.engines.base.Session`. ``token_ttl`` in seconds; None: fencing counters never expire."""

    def __init__(self, channel: Channel, runtime: Runtime, token_ttl: float | None) -> None:
        self._channel = channel
        self._runtime = runtime
        self._token_ttl = 0 if token_ttl is None else math.ceil(token_ttl * 1000)
        self._closings: dict[tuple[float, int, bool, bytes], Closing] = {}
        self._around_description: dict[tuple[float, int, bool], tuple[Closing, Closing]] = {}

    async def acquire(self, claim: Claim, timeout: float) -> Granted | Busy:
        keys = keys_of(claim.name)
        settings = (claim.ttl, claim.tokens, claim.fair or claim.polite, claim.description)
        closing = self._closings.get(settings)
        if closing is None:
            closing = self._close_request(claim)
        names: Sequence[str] = keys.acquire
        args: Sequence[Argument] = Arguments(claim.owner, closing)
        waiter = claim.waiter
        if waiter is not None:
            names, args = (*names, keys.waiter(waiter)), (*args, waiter)
        acknowledged = 0
        try:
            if claim.replicas:
                call = Call(ACQUIRE, names, args)
                reply, acknowledged = await self._channel.run_acknowledged(call, claim.replicas, timeout)
            else:
                reply = await self._channel.run(ACQUIRE, names, args, timeout)
        except WrongType as error:
            raise await self._foreign(claim.name, error, timeout) from error
        except WaitRefused as refusal:
            if refusal.reply.__class__ is not int:
                await self._unreplicated(claim, 0, timeout)  # granted: leave nothing behind
            raise
        if reply.__class__ is int:
            return Busy(reply / 1000.0 if reply >= 0 else None)
        claim.waiter = None  # the script has removed it
        if acknowledged < claim.replicas:
            raise await self._unreplicated(claim, acknowledged, timeout)
        return Granted(int(reply))

    async def _unreplicated(self, claim: Claim, acknowledged: int, timeout: float) -> RequestFailed:
        """A grant that would not survive the master is none: take it back, and let the caller try again."""
        lingers = False
        try:
            await self._withdraw_one(claim, timeout)
        except RequestFailed:
            lingers = True
        claim.reissue(lingers=lingers)
        return RequestFailed(str(unacknowledged(acknowledged, claim.replicas)), may_have_happened=lingers)

    def _close_request(self, claim: Claim) -> Closing:
        """The end of an acquire request: all that does not name the lock or the owner, packed once.

        Each task of an event loop has a description of its own, often for one lock: what is around that is kept too.
        """
        polite = claim.fair or claim.polite
        parts = self._around_description.get((claim.ttl, claim.tokens, polite))
        if parts is None:
            if len(self._around_description) >= _CLOSINGS_CAP:
                self._around_description.clear()
            parts = (
                Closing.of(math.ceil(claim.ttl * 1000), claim.tokens),
                Closing.of(self._token_ttl, 1 if polite else 0, 0),
            )
            self._around_description[claim.ttl, claim.tokens, polite] = parts
        closing = Closing.around(parts[0], claim.description, parts[1])
        if len(self._closings) >= _CLOSINGS_CAP:
            self._closings.clear()
        self._closings[claim.ttl, claim.tokens, polite, claim.description] = closing
        return closing

    def contender(self, claim: Claim, timeout: float) -> RedisContender:
        return RedisContender(self._channel, self._runtime, claim, keys_of(claim.name), timeout)

    async def renew(self, claims: Sequence[Claim], ttl: float, timeout: float) -> Sequence[Found | RequestFailed]:
        answers: dict[Claim, Found | RequestFailed] = {}
        # Those who wait for replicas come last: others must not have to wait with them.
        for replicas in sorted({claim.replicas for claim in claims}):
            batches = self._batches([claim for claim in claims if claim.replicas == replicas])
            calls = [self._renewal(batch, ttl, replicas) for batch in batches]
            replies = await self._channel.run_guarded(calls, replicas, timeout)
            for batch, reply in zip(batches, replies, strict=True):
                answers.update(zip(batch, each(reply, len(batch)), strict=True))
        return [answers[claim] for claim in claims]

    def _batches(self, claims: Sequence[Claim]) -> Sequence[Sequence[Claim]]:
        """What one script may renew at a time."""
        return [claims[start : start + CHUNK] for start in range(0, len(claims), CHUNK)]

    def _renewal(self, claims: Sequence[Claim], ttl: float, replicas: int) -> Call:
        names = [key for claim in claims for key in keys_of(claim.name).renew]
        args: list[Argument] = [math.ceil(ttl * 1000), self._token_ttl, 1 if replicas else 0]
        args += [claim.owner for claim in claims]
        return Call(RENEW, names, args, watched=[claim.name for claim in claims])

    async def release(self, claim: Claim, timeout: float) -> Found:
        keys, how = keys_of(claim.name), self._channel.publish
        closing = Closing.of(keys.channel, how, tombstone_ms(claim)) if claim.unresolved else keys.published(how)
        return FOUND[await self._channel.run(RELEASE, keys.release, Arguments(claim.owner, closing), timeout)]

    async def watch(self, claims: Sequence[Claim], timeout: float) -> Sequence[Found | RequestFailed]:
        """One command for each claim: it looks, and the connection tracks what it has looked at."""
        looks = [Plain("HEXISTS", claim.name, claim.owner) for claim in claims]
        answers = [_seen(reply) for reply in await self._channel.run_together(looks, timeout)]
        gone = [at for at, answer in enumerate(answers) if answer is Found.GONE]
        if gone:  # or stolen: a renewal to next to nothing tells them apart, and changes nothing
            told = await self.renew([claims[at] for at in gone], _ONLY_ASK, timeout)
            for at, answer in zip(gone, told, strict=True):
                answers[at] = answer
        return answers

    async def withdraw(self, claims: Sequence[Claim], timeout: float) -> Sequence[Withdrawn]:
        owners = [(claim, owner) for claim in claims for owner in (claim.owner, *claim.remains)]
        publish = self._channel.publish
        calls = [Call(RELEASE, *withdrawal(claim, owner, publish)) for claim, owner in owners]
        answers: dict[Claim, Withdrawn] = {}
        for (claim, owner), reply in zip(owners, await self._channel.run_together(calls, timeout), strict=True):
            answer: Withdrawn = reply if isinstance(reply, RequestFailed | EngineRefused) else FOUND[reply]
            if owner == claim.owner:
                answers[claim] = answer
            elif isinstance(answer, RequestFailed):
                answers[claim] = answer  # what is left of an earlier attempt: to be tried again with all of it
            else:
                claim.remains = tuple(each for each in claim.remains if each != owner)
        return [answers[claim] for claim in claims]

    async def _withdraw_one(self, claim: Claim, timeout: float) -> None:
        (answer,) = await self.withdraw([claim], timeout)
        if isinstance(answer, Exception):
            raise answer

    async def inspect(self, name: str, timeout: float) -> LockState:
        keys = keys_of(name)
        try:
            reply = await self._channel.run(INSPECT, keys.inspect, keys.inspected, timeout)
        except WrongType as error:
            raise await self._foreign(name, error, timeout) from error
        return metadata.lock_state(name, reply)

    async def names(self, prefix: str, timeout: float) -> AsyncIterator[str]:
        """Names that are held through holdfast, found by their metadata. Java's plain locks have none and are not
        found: nothing tells their hashes from other hashes. ``inspect`` sees them all the same."""
        seen = set[str]()  # SCAN may return a key more than once
        for server in await self._channel.servers(timeout):
            async for name in scan(server, prefix, timeout):
                if name not in seen:
                    seen.add(name)
                    if await self._is_held(name, timeout):
                        yield name

    async def _is_held(self, name: str, timeout: float) -> bool:
        """Whether ``name`` is a lock. Metadata may outlive it, and is also that of ``x`` if it is that of ``{x}``."""
        try:
            return bool(await self._channel.run(HELD, (name,), (), timeout))
        except WrongType:
            return False

    async def break_(self, name: str, timeout: float, token: int | None = None) -> bool:
        keys, only = keys_of(name), "" if token is None else str(token)
        args = (keys.channel, self._channel.publish, self._token_ttl, only, "")
        try:
            held = await self._channel.run(BREAK, keys.raise_, args, timeout)
        except WrongType as error:
            raise await self._foreign(name, error, timeout) from error
        return bool(held)

    async def ping(self, timeout: float) -> None:
        await self._channel.run(PING, (), (), timeout)

    async def doze(self, until: float, wakeup: Wakeup) -> Suspects:
        suspects = await self._channel.doze(until, wakeup)
        return suspects if suspects == ALL_NAMES else {key for key in suspects if not is_side_key(key)}

    async def close(self) -> None:
        await self._channel.close()

    async def _foreign(self, name: str, error: WrongType, timeout: float) -> EngineRefused:
        """The sentence about a key of another type: a string is redis-py's lock, most often."""
        if isinstance(error, NotALock):
            return EngineRefused(f"{name!r} is not a lock: {error}", name=name)
        try:
            kind = (await self._channel.command(("TYPE", name), timeout)).decode()
        except EngineRefused:
            kind = "hash"  # not allowed to look
        found = f"a key beside {name!r} holds a value of another type"
        if kind not in ("hash", "none"):
            found = f"key {name!r} holds a {kind}"
        return EngineRefused(f"{found}, probably another lock library's; use namespace=", name=name)


async def scan(server: Channel, prefix: str, timeout: float) -> AsyncIterator[str]:
    """Names with metadata on one server. Some may not be held any more, some may come twice."""
    cursor = b"0"
    while True:
        request = ("SCAN", cursor, "MATCH", pattern(prefix), "COUNT", _SCAN_COUNT)
        cursor, found = await server.command(request, timeout)
        for key in found:
            for name in names_of(key.decode("utf-8", "replace")):
                if name.startswith(prefix):
                    yield name
        if cursor == b"0":
            return


def withdrawal(claim: Claim, owner: str, publish: Publish) -> tuple[tuple[str, ...], tuple[Argument, ...]]:
    """Keys and arguments that remove whatever ``owner`` has of a lock, and its place in the line, for good."""
    keys, waiter = keys_of(claim.name), claim.waiter
    names: tuple[str, ...] = (*keys.release,)
    args: tuple[Argument, ...] = (owner, keys.channel, publish, tombstone_ms(claim))
    if waiter is not None:
        names += (keys.queue, keys.waiter(waiter))
        args += (waiter,)
    return names, args


def tombstone_ms(claim: Claim) -> int:
    return math.ceil(max(2 * claim.ttl, _TOMBSTONE) * 1000)


def _seen(reply: Answer) -> Found | RequestFailed:
    """What HEXISTS says of a claim. A key of another type has replaced the lock."""
    if isinstance(reply, WrongType):
        return Found.STOLEN
    if isinstance(reply, Exception):
        (failure,) = each(reply, 1)
        return failure
    return Found.OURS if reply else Found.GONE


def each(reply: Answer, count: int) -> Sequence[Found | RequestFailed]:
    """One answer for each claim of a batch."""
    if isinstance(reply, EngineRefused):
        # Tried again until the lease runs out: an ACL can be mended, a lease cannot.
        refusal, reply = reply, RequestFailed(str(reply), may_have_happened=False)
        reply.__cause__ = refusal
    if isinstance(reply, RequestFailed):
        return [reply] * count
    return [FOUND[found] for found in reply]
