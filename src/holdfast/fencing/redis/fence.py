"""The fence on the program's own redis-py client: one core, a sync and an async API."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from redis.exceptions import NoScriptError

from holdfast._config import names
from holdfast._config.durations import Duration, parse_duration
from holdfast._runtime.blocking import run
from holdfast.errors import UsageError
from holdfast.fencing.redis import operation
from holdfast.fencing.redis.keys import Key, resource_of, validate_for_cluster
from holdfast.fencing.redis.operation import SHA, SOURCE, Operation, Value
from holdfast.fencing.rule import Bearer, Lease, bearer

_LONGEST_TTL: Final = 10 * 365 * 86_400.0


class _Core:
    """What RedisFence and AsyncRedisFence share: they build an operation, send it and read the reply."""

    _awaited: bool

    def __init__(self, client: Any, *, ttl: Duration | None = None) -> None:
        """``client`` is the program's own. ``ttl``: how long a guard outlives its last use; None: for ever."""
        self._client = _checked(client, awaited=self._awaited, face=type(self).__name__)
        self._cluster = "RedisCluster" in _class_names(client)
        self._ttl = 0 if ttl is None else _milliseconds(ttl)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._client).__name__})"  # its settings may hold a password

    def _check(self, resource: str, token: int | Lease, owner: str | None) -> Operation:
        resource = self._named(names.validate(resource, what="resource name"))
        return operation.check(resource, self._incoming(token, owner), self._ttl)

    def _command(
        self, name: str, key: Key, token: int | Lease, owner: str | None, resource: str | None, *arguments: Value
    ) -> Operation:
        resource = self._named(resource_of([key], resource))
        return operation.command(resource, self._incoming(token, owner), self._ttl, name, key, *arguments)

    def _script(
        self,
        source: str,
        keys: Sequence[Key],
        arguments: Sequence[Value],
        token: int | Lease,
        owner: str | None,
        resource: str | None,
    ) -> Operation:
        if isinstance(keys, str | bytes):
            raise TypeError("keys is a list of keys, not one key")
        resource = self._named(resource_of(list(keys), resource))
        return operation.script(resource, self._incoming(token, owner), self._ttl, source, keys, arguments)

    def _incoming(self, token: int | Lease, owner: str | None) -> Bearer:
        return bearer(token, owner, fence=type(self).__name__)

    def _named(self, resource: str) -> str:
        if self._cluster:
            validate_for_cluster(resource)
        return resource

    async def _run(self, requested: Operation) -> Any:
        try:
            reply = await self._send("EVALSHA", SHA, *requested.words)
        except NoScriptError:  # it did not run
            reply = await self._send("EVAL", SOURCE, *requested.words)
        return requested.result(reply)

    async def _send(self, *words: Value) -> Any:
        reply = self._client.execute_command(*words)
        return await reply if self._awaited else reply


class RedisFence(_Core):
    """A fence for data in Redis: each call checks the token and reads or writes, in one script.

    It uses the program's own ``redis.Redis`` or ``redis.RedisCluster``; with or without ``decode_responses``. The
    newest token is kept in a key beside the data, ``holdfast_fence:{tag}:<resource>``, in the same hash slot. The
    *resource* is the data key, unless ``resource=`` names another; keys that are changed together share one.

    Guarantee: a token older than one that was seen for the resource, or equal of another owner, raises
    :class:`holdfast.StaleToken` and changes nothing. Call :meth:`get` (or :meth:`check`) *before* the first read: it
    raises the guard, and an older holder can no longer write between your read and your write.

    Not guaranteed: clients that write without the fence are not stopped. The guard is only as durable as the data: if a
    failover, a restored backup or an eviction loses it, an old holder can write again. With ``ttl`` it expires after
    that time without use; ``ttl`` must be longer than any holder can be frozen. The client's errors are passed on
    unchanged; after a timeout it is unknown whether the call took effect. The same call may be repeated: the same token
    and owner are accepted again. redis-py repeats calls itself if its ``retry`` says so, scripts too.
    """

    _awaited = False

    def check(self, resource: str, token: int | Lease, owner: str | None = None) -> None:
        """Raise the guard, read and write nothing. Raises :class:`holdfast.StaleToken`."""
        run(self._run(self._check(resource, token, owner)))

    def get(self, key: Key, token: int | Lease, owner: str | None = None, *, resource: str | None = None) -> Any:
        """Raise the guard and read ``key``, in one step. Needs the master: it writes the guard."""
        return run(self._run(self._command("GET", key, token, owner, resource)))

    def set(
        self,
        key: Key,
        value: Value,
        token: int | Lease,
        owner: str | None = None,
        *,
        resource: str | None = None,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
    ) -> bool:
        """SET ``key`` if the token is not stale. False: not set, because of ``nx`` or ``xx``."""
        options = _set_options(ex, px, nx, xx, keepttl)
        return run(self._run(self._command("SET", key, token, owner, resource, value, *options))) is not None

    def delete(self, key: Key, token: int | Lease, owner: str | None = None, *, resource: str | None = None) -> bool:
        """DEL ``key`` if the token is not stale. The guard stays. True: the key was there."""
        return bool(run(self._run(self._command("DEL", key, token, owner, resource))))

    def eval(
        self,
        script: str,
        keys: Sequence[Key],
        args: Sequence[Value],
        token: int | Lease,
        owner: str | None = None,
        *,
        resource: str | None = None,
    ) -> Any:
        """Run a Lua script of your own if the token is not stale, in the same step; returns its reply.

        It sees its own KEYS and ARGV, as if it ran alone. A syntax error is a UsageError, and nothing was changed. An
        error at run time leaves the guard raised and whatever the script had written: Redis does not roll back.
        """
        return run(self._run(self._script(script, keys, args, token, owner, resource)))


class AsyncRedisFence(_Core):
    """:class:`RedisFence` for ``redis.asyncio``: the same calls, awaited. It refuses a sync client, and the reverse.

    A call that is cancelled after it was sent may have taken effect.
    """

    _awaited = True

    async def check(self, resource: str, token: int | Lease, owner: str | None = None) -> None:
        """Raise the guard, read and write nothing. Raises :class:`holdfast.StaleToken`."""
        await self._run(self._check(resource, token, owner))

    async def get(self, key: Key, token: int | Lease, owner: str | None = None, *, resource: str | None = None) -> Any:
        """Raise the guard and read ``key``, in one step. Needs the master: it writes the guard."""
        return await self._run(self._command("GET", key, token, owner, resource))

    async def set(
        self,
        key: Key,
        value: Value,
        token: int | Lease,
        owner: str | None = None,
        *,
        resource: str | None = None,
        ex: int | timedelta | None = None,
        px: int | timedelta | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
    ) -> bool:
        """SET ``key`` if the token is not stale. False: not set, because of ``nx`` or ``xx``."""
        options = _set_options(ex, px, nx, xx, keepttl)
        return await self._run(self._command("SET", key, token, owner, resource, value, *options)) is not None

    async def delete(
        self, key: Key, token: int | Lease, owner: str | None = None, *, resource: str | None = None
    ) -> bool:
        """DEL ``key`` if the token is not stale. The guard stays. True: the key was there."""
        return bool(await self._run(self._command("DEL", key, token, owner, resource)))

    async def eval(
        self,
        script: str,
        keys: Sequence[Key],
        args: Sequence[Value],
        token: int | Lease,
        owner: str | None = None,
        *,
        resource: str | None = None,
    ) -> Any:
        """Run a Lua script of your own if the token is not stale, in the same step; returns its reply.

        It sees its own KEYS and ARGV, as if it ran alone. A syntax error is a UsageError, and nothing was changed. An
        error at run time leaves the guard raised and whatever the script had written: Redis does not roll back.
        """
        return await self._run(self._script(script, keys, args, token, owner, resource))


def _checked(client: Any, *, awaited: bool, face: str) -> Any:
    """UsageError for a client that this class cannot use: its calls would seem to succeed and check nothing."""
    if any("Pipeline" in name for name in _class_names(client)):
        raise UsageError(f"{face} needs a client, not a pipeline: a pipeline only queues the check")
    if not callable(getattr(client, "execute_command", None)):
        raise UsageError(f"{face} needs a client of redis-py, not {type(client).__name__}")
    if inspect.iscoroutinefunction(client.execute_command) != awaited:
        other = "RedisFence" if awaited else "AsyncRedisFence"
        raise UsageError(f"{face} cannot use {type(client).__module__}.{type(client).__name__}: use {other}")
    return client


def _class_names(client: Any) -> list[str]:
    return [kind.__name__ for kind in type(client).__mro__]


def _milliseconds(ttl: Duration) -> int:
    seconds = parse_duration(ttl, what="ttl")
    if not 0.001 <= seconds <= _LONGEST_TTL:
        raise ValueError(f"the ttl of a guard is from 1 ms to 10 years, not {seconds:g} s; None keeps it for ever")
    return int(seconds * 1000)


def _set_options(
    ex: int | timedelta | None, px: int | timedelta | None, nx: bool, xx: bool, keepttl: bool
) -> list[Value]:
    """The words after SET key value. The server refuses invalid combinations."""
    words: list[Value] = []
    if ex is not None:
        words += ["EX", int(ex.total_seconds()) if isinstance(ex, timedelta) else ex]
    if px is not None:
        words += ["PX", int(px.total_seconds() * 1000) if isinstance(px, timedelta) else px]
    return words + [word for word, given in (("NX", nx), ("XX", xx), ("KEEPTTL", keepttl)) if given]
