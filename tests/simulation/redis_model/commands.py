"""The commands of the simulated Redis: those that the shipped scripts and the engine use, and related ones.

An unknown command, option or arity is an error: the model must not be more lenient than the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from tests.simulation.redis_model.keyspace import Keyspace, ReplyError, SortedSet

Words = Sequence[bytes]
OK: Final = "OK"  #: a status reply: the only replies that are str

_INT64: Final = 2**63
_SYNTAX: Final = "ERR syntax error"


class Command(NamedTuple):
    """The function of a command, which arguments are keys that it reads (for client tracking), and its arity."""

    run: Callable[[Keyspace, int, Words], Any]
    reads: slice | None
    least: int
    most: float


COMMANDS: Final[dict[bytes, Command]] = {}
_FIRST: Final = slice(0, 1)
_ALL: Final = slice(0, None)


def _command(
    arity: int, *, reads: slice | None = None
) -> Callable[[Callable[[Keyspace, int, Words], Any]], Callable[[Keyspace, int, Words], Any]]:
    """Registers a command. ``arity`` counts arguments; negative: at least so many."""

    def register(run: Callable[[Keyspace, int, Words], Any]) -> Callable[[Keyspace, int, Words], Any]:
        name = run.__name__.strip("_").upper().encode()
        COMMANDS[name] = Command(run, reads, abs(arity), arity if arity >= 0 else math.inf)
        return run

    return register


def integer(word: bytes) -> int:
    """A 64-bit integer as Redis parses it: no plus sign, no space, no exponent (1.79e+15 is refused)."""
    digits = word[1:] if word[:1] == b"-" else word
    if not digits.isdigit() or (len(digits) > 1 and digits[:1] == b"0") or not -_INT64 <= int(word) < _INT64:
        raise ReplyError("ERR value is not an integer or out of range")
    return int(word)


def _expiry(now: int, word: bytes, unit: int, command: str, *, absolute: bool = False) -> int:
    amount = integer(word) * unit
    if amount <= 0:
        raise ReplyError(f"ERR invalid expire time in '{command}' command")
    return amount if absolute else now + amount


# -- any type ------------------------------------------------------------------------------------------------------


@_command(-1, reads=_ALL)
def exists(keys: Keyspace, now: int, words: Words) -> int:
    return sum(key in keys for key in words)


@_command(1, reads=_FIRST)
def type_(keys: Keyspace, now: int, words: Words) -> Any:
    return keys.type_name(words[0]).decode()


@_command(-1)
def del_(keys: Keyspace, now: int, words: Words) -> int:
    return sum(key in keys and keys.remove(key) for key in words)


@_command(-1)
def unlink(keys: Keyspace, now: int, words: Words) -> int:
    return sum(key in keys and keys.remove(key) for key in words)


def _set_expiry(keys: Keyspace, key: bytes, expiry: int, options: Words) -> int:
    if key not in keys:
        return 0
    current = keys.expiry(key)
    for option in options:
        refused = {
            b"NX": current is not None,
            b"XX": current is None,
            b"GT": current is None or expiry <= current,
            b"LT": current is not None and expiry >= current,
        }.get(option.upper())
        if refused is None:
            raise ReplyError(f"ERR Unsupported option {option.decode()}")
        if refused:
            return 0
    keys.set_expiry(key, expiry)
    return 1


@_command(-2)
def pexpire(keys: Keyspace, now: int, words: Words) -> int:
    return _set_expiry(keys, words[0], now + integer(words[1]), words[2:])


@_command(-2)
def expire(keys: Keyspace, now: int, words: Words) -> int:
    return _set_expiry(keys, words[0], now + 1000 * integer(words[1]), words[2:])


@_command(-2)
def pexpireat(keys: Keyspace, now: int, words: Words) -> int:
    return _set_expiry(keys, words[0], integer(words[1]), words[2:])


@_command(1)
def persist(keys: Keyspace, now: int, words: Words) -> int:
    if words[0] not in keys or keys.expiry(words[0]) is None:
        return 0
    keys.set_expiry(words[0], None)
    return 1


@_command(1, reads=_FIRST)
def pttl(keys: Keyspace, now: int, words: Words) -> int:
    if words[0] not in keys:
        return -2
    expiry = keys.expiry(words[0])
    return -1 if expiry is None else max(0, expiry - now)


@_command(1, reads=_FIRST)
def pexpiretime(keys: Keyspace, now: int, words: Words) -> int:
    if words[0] not in keys:
        return -2
    expiry = keys.expiry(words[0])
    return -1 if expiry is None else expiry


# -- strings -------------------------------------------------------------------------------------------------------


@_command(1, reads=_FIRST)
def get(keys: Keyspace, now: int, words: Words) -> bytes | None:
    return keys.read(words[0], bytes)


@_command(-2)
def set_(keys: Keyspace, now: int, words: Words) -> Any:
    key, value, *options = words
    expiry: int | None = None
    reply: Any = OK
    while options:
        option = options.pop(0).upper()
        if option in (b"PX", b"EX", b"PXAT") and options:
            unit = 1000 if option == b"EX" else 1
            expiry = _expiry(now, options.pop(0), unit, "set", absolute=option == b"PXAT")
        elif option == b"KEEPTTL":
            expiry = keys.expiry(key) if key in keys else None
        elif option == b"GET":
            reply = keys.read(key, bytes)
        elif option in (b"NX", b"XX"):
            if (key in keys) == (option == b"NX"):
                return None
        else:
            raise ReplyError(_SYNTAX)
    keys.replace(key, value, expiry)
    return reply


@_command(2)
def incrby(keys: Keyspace, now: int, words: Words) -> int:
    return _add(keys, words[0], integer(words[1]))


def _add(keys: Keyspace, key: bytes, amount: int) -> int:
    value = keys.read(key, bytes)
    total = (0 if value is None else integer(value)) + amount
    if not -_INT64 <= total < _INT64:
        raise ReplyError("ERR increment or decrement would overflow")
    keys.replace(key, b"%d" % total, keys.expiry(key))
    return total


@_command(1)
def incr(keys: Keyspace, now: int, words: Words) -> int:
    return _add(keys, words[0], 1)


# -- hashes --------------------------------------------------------------------------------------------------------


@_command(-3)
def hset(keys: Keyspace, now: int, words: Words) -> int:
    key, *pairs = words
    if len(pairs) % 2:
        raise ReplyError("ERR wrong number of arguments for 'hset' command")
    fields = keys.open(key, dict)
    before = len(fields)
    fields.update(zip(pairs[::2], pairs[1::2], strict=True))
    keys.changed(key)
    return len(fields) - before


@_command(2, reads=_FIRST)
def hget(keys: Keyspace, now: int, words: Words) -> bytes | None:
    return (keys.read(words[0], dict) or {}).get(words[1])


@_command(-2, reads=_FIRST)
def hmget(keys: Keyspace, now: int, words: Words) -> list[bytes | None]:
    fields = keys.read(words[0], dict) or {}
    return [fields.get(field) for field in words[1:]]


@_command(2, reads=_FIRST)
def hexists(keys: Keyspace, now: int, words: Words) -> int:
    return int(words[1] in (keys.read(words[0], dict) or {}))


@_command(-2)
def hdel(keys: Keyspace, now: int, words: Words) -> int:
    fields = keys.read(words[0], dict) or {}
    gone = sum(fields.pop(field, None) is not None for field in words[1:])
    if gone:
        keys.changed(words[0])
    return gone


@_command(1, reads=_FIRST)
def hlen(keys: Keyspace, now: int, words: Words) -> int:
    return len(keys.read(words[0], dict) or {})


@_command(2, reads=_FIRST)
def hrandfield(keys: Keyspace, now: int, words: Words) -> list[bytes]:
    return list(keys.read(words[0], dict) or {})[: integer(words[1])]


@_command(1, reads=_FIRST)
def hgetall(keys: Keyspace, now: int, words: Words) -> list[bytes]:
    return [word for pair in (keys.read(words[0], dict) or {}).items() for word in pair]


@_command(1, reads=_FIRST)
def hkeys(keys: Keyspace, now: int, words: Words) -> list[bytes]:
    return list(keys.read(words[0], dict) or {})


@_command(3)
def hincrby(keys: Keyspace, now: int, words: Words) -> int:
    key, field, amount = words[0], words[1], integer(words[2])
    total = integer((keys.read(key, dict) or {}).get(field, b"0")) + amount
    hset(keys, now, (key, field, b"%d" % total))
    return total


# -- lists ---------------------------------------------------------------------------------------------------------


@_command(-2)
def rpush(keys: Keyspace, now: int, words: Words) -> int:
    entries = keys.open(words[0], list)
    entries.extend(words[1:])
    keys.changed(words[0])
    return len(entries)


@_command(-2)
def lpush(keys: Keyspace, now: int, words: Words) -> int:
    entries = keys.open(words[0], list)
    entries[:0] = reversed(words[1:])
    keys.changed(words[0])
    return len(entries)


@_command(1)
def lpop(keys: Keyspace, now: int, words: Words) -> bytes | None:
    entries: list[bytes] | None = keys.read(words[0], list)
    if not entries:
        return None
    first = entries.pop(0)
    keys.changed(words[0])
    return first


@_command(1)
def rpop(keys: Keyspace, now: int, words: Words) -> bytes | None:
    entries: list[bytes] | None = keys.read(words[0], list)
    if not entries:
        return None
    last = entries.pop()
    keys.changed(words[0])
    return last


@_command(3)
def lset(keys: Keyspace, now: int, words: Words) -> Any:
    entries: list[bytes] | None = keys.read(words[0], list)
    if entries is None:
        raise ReplyError("ERR no such key")
    index = integer(words[1])
    if not -len(entries) <= index < len(entries):
        raise ReplyError("ERR index out of range")
    entries[index] = words[2]
    keys.changed(words[0])
    return OK


@_command(1, reads=_FIRST)
def llen(keys: Keyspace, now: int, words: Words) -> int:
    return len(keys.read(words[0], list) or ())


@_command(2, reads=_FIRST)
def lindex(keys: Keyspace, now: int, words: Words) -> bytes | None:
    entries: list[bytes] = keys.read(words[0], list) or []
    index = integer(words[1])
    return entries[index] if -len(entries) <= index < len(entries) else None


@_command(2, reads=_FIRST)
def lpos(keys: Keyspace, now: int, words: Words) -> int | None:
    entries: list[bytes] = keys.read(words[0], list) or []
    return entries.index(words[1]) if words[1] in entries else None


@_command(3, reads=_FIRST)
def lrange(keys: Keyspace, now: int, words: Words) -> list[bytes]:
    entries: list[bytes] = keys.read(words[0], list) or []
    return _span(entries, words[1], words[2])


def _span(entries: list[bytes], first: bytes, last: bytes) -> list[bytes]:
    start, stop = integer(first), integer(last)
    size = len(entries)
    start = max(0, start + size if start < 0 else start)
    stop = stop + size if stop < 0 else stop
    return entries[start : stop + 1]


@_command(3)
def lrem(keys: Keyspace, now: int, words: Words) -> int:
    entries: list[bytes] = keys.read(words[0], list) or []
    limit = integer(words[1])
    places = [place for place, entry in enumerate(entries) if entry == words[2]]
    if limit:
        places = places[:limit] if limit > 0 else places[limit:]
    for place in reversed(places):
        del entries[place]
    if places:
        keys.changed(words[0])
    return len(places)


# -- sorted sets ---------------------------------------------------------------------------------------------------


@_command(-3)
def zadd(keys: Keyspace, now: int, words: Words) -> int:
    key, *pairs = words
    if len(pairs) % 2:
        raise ReplyError(_SYNTAX)
    scores = [float(score) for score in pairs[::2]]
    members = keys.open(key, SortedSet)
    before = len(members)
    members.update(zip(pairs[1::2], scores, strict=True))
    keys.changed(key)
    return len(members) - before


@_command(-2)
def zrem(keys: Keyspace, now: int, words: Words) -> int:
    members = keys.read(words[0], SortedSet) or SortedSet()
    gone = sum(members.pop(member, None) is not None for member in words[1:])
    if gone:
        keys.changed(words[0])
    return gone


@_command(2, reads=_FIRST)
def zscore(keys: Keyspace, now: int, words: Words) -> bytes | None:
    return _score((keys.read(words[0], SortedSet) or SortedSet()).get(words[1]))


def _score(score: float | None) -> bytes | None:
    return None if score is None else b"%.17g" % score


@_command(-2, reads=_FIRST)
def zmscore(keys: Keyspace, now: int, words: Words) -> list[bytes | None]:
    members = keys.read(words[0], SortedSet) or SortedSet()
    return [_score(members.get(member)) for member in words[1:]]


@_command(1, reads=_FIRST)
def zcard(keys: Keyspace, now: int, words: Words) -> int:
    return len(keys.read(words[0], SortedSet) or ())


@_command(-3, reads=_FIRST)
def zrange(keys: Keyspace, now: int, words: Words) -> list[bytes | None]:
    if [word.upper() for word in words[3:]] not in ([], [b"WITHSCORES"]):
        raise ReplyError(_SYNTAX)
    members = keys.read(words[0], SortedSet) or SortedSet()
    chosen: list[bytes | None] = []
    for member in _span([member for member, _ in members.ranked()], words[1], words[2]):
        chosen += (member, _score(members[member])) if words[3:] else (member,)
    return chosen


def _bound(word: bytes, *, low: bool) -> Callable[[float], bool]:
    """A limit of scores, as ZRANGEBYSCORE takes it: ``(`` excludes it."""
    exclusive = word[:1] == b"("
    limit = float(word[1:] if exclusive else word)
    if low:
        return lambda score: score > limit if exclusive else score >= limit
    return lambda score: score < limit if exclusive else score <= limit


def _between(keys: Keyspace, words: Words) -> list[bytes]:
    least, most = _bound(words[1], low=True), _bound(words[2], low=False)
    members = keys.read(words[0], SortedSet) or SortedSet()
    return [member for member, score in members.ranked() if least(score) and most(score)]


@_command(-3, reads=_FIRST)
def zrangebyscore(keys: Keyspace, now: int, words: Words) -> list[bytes]:
    if not words[3:]:
        return _between(keys, words)
    if len(words) != 6 or words[3].upper() != b"LIMIT":
        raise ReplyError(_SYNTAX)
    start, count = integer(words[4]), integer(words[5])
    return _between(keys, words)[start:][:count]


@_command(3)
def zremrangebyscore(keys: Keyspace, now: int, words: Words) -> int:
    gone: int = zrem(keys, now, (words[0], *_between(keys, words)))
    return gone
