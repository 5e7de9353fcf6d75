"""The rights that the engine needs, and which of them this Redis user lacks.

ACL DRYRUN (Redis 7) answers without a side effect. Where it is not allowed, each command is tried on keys of our own
that hold a string for a second: the server checks rights before types, so an allowed command fails with a type error.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.cli.doctor.connection import Connection, Refused
from holdfast.cli.doctor.facts import Lack, Purpose
from holdfast.engines.redis.dialect.keys import keys_of, prefixed, shared_keys_of
from holdfast.engines.redis.dialect.registers import RegisterKeys
from holdfast.engines.redis.scripts import PING

_TRIED_TTL_MS: Final = 1000
_WITH_SUBCOMMANDS: Final = frozenset({"client", "cluster", "pubsub"})


class Need(NamedTuple):
    """A command as the engine sends it, or as its scripts do. ``pattern``: the right to its key or channel."""

    purpose: Purpose
    words: tuple[str, ...]
    pattern: str = ""

    @property
    def right(self) -> str:
        """The right to the command."""
        return f"+{'|'.join(self.words[:2]) if self.words[0] in _WITH_SUBCOMMANDS else self.words[0]}"

    @property
    def on_key(self) -> bool:
        return self.pattern.startswith("~")


def needs(name: str, namespace: str, *, clustered: bool = False) -> list[Need]:
    """All commands that the engine sends for the lock ``name``, which is in ``namespace``."""
    keys = keys_of(name)
    inner = f"{namespace}:*" if namespace else "*"

    def on(purpose: Purpose, key: str, prefix: str, *commands: str) -> list[Need]:
        pattern = f"~{prefix}:{{{inner}" if prefix and namespace else f"~{prefix}:*" if prefix else f"~{inner}"
        return [Need(purpose, (first, key, *rest), pattern) for first, *rest in map(str.split, commands)]

    gone, waiter = f"{prefixed('holdfast_lock', name)}:gone:x", keys.waiter("x")
    probe = f"{prefixed('holdfast_probe', name)}:x"

    def on_channel(purpose: Purpose, channel: str, prefix: str) -> list[Need]:
        pattern = f"&{prefix}:{{{inner}" if namespace else f"&{prefix}:*"
        return [
            Need(purpose, ("publish", channel, "0"), pattern),
            Need(purpose, ("subscribe", channel), pattern),
            Need(purpose, ("unsubscribe", channel)),
        ]

    register = RegisterKeys(name, "x")
    take, wait, look, give = Purpose.LOCKS, Purpose.WAITING, Purpose.INSPECTING, Purpose.HAND_OVER
    state, several, further = Purpose.REGISTERS, Purpose.SHARED, Purpose.FURTHER_CHANNELS
    shared = shared_keys_of(name)

    def of_shared(key: str, *commands: str) -> list[Need]:
        """Keys that begin with the name in braces."""
        pattern = f"~{{{inner}" if namespace else "~*"
        return [need._replace(pattern=pattern) for need in on(several, key, "", *commands)]

    return [
        Need(take, ("evalsha", PING.sha, "0")),
        Need(take, ("eval", PING.source, "0")),
        Need(take, ("time",)),
        *on(take, keys.name, "", "exists", "pttl", "hexists f", "hset f 1", "pexpire 1000", "del"),
        *on(take, keys.token, "redisson_lock_token", "get", "set 1 px 1000", "pttl", "pexpire 1000"),
        *on(take, keys.metadata, "holdfast_owner", "get", "set 1 px 1000", "pexpire 1000", "del"),
        *on(take, gone, "holdfast_lock", "exists", "set 1 px 1000"),
        *on(wait, keys.queue, "holdfast_queue", "rpush x", "lpos x", "lindex 0", "lrem 1 x", "lpop", "pexpire 1000"),
        *on(wait, waiter, "holdfast_queue", "set 1 px 1000", "exists", "pttl", "pexpire 1000", "del"),
        *on(look, keys.name, "", "hgetall", "hlen"),
        *on(look, keys.queue, "holdfast_queue", "lrange 0 0"),
        *on(look, waiter, "holdfast_queue", "get"),
        Need(Purpose.PUSHES, ("client", "tracking", "on", "optin")),
        Need(Purpose.PUSHES, ("client", "caching", "yes")),
        *on(Purpose.PUSHES, probe, "holdfast_probe", "set 1 px 1000", "pttl", "del"),
        *on_channel(Purpose.CHANNEL, keys.channel, "redisson_lock__channel"),
        *on(give, keys.name, "", "hdel f", "hrandfield 2"),
        *on(give, keys.queue, "holdfast_queue", "lpush x", "rpop", "lset 0 x"),
        Need(give, ("publish", "holdfast_wake:x", "0"), "&holdfast_wake:*"),
        Need(give, ("subscribe", "holdfast_wake:x"), "&holdfast_wake:*"),
        Need(give, ("pubsub", "numsub")),
        Need(give, ("info", "replication")),
        *on(state, register.register, "holdfast_register", "hmget f", "hset f 1", "pttl", "pexpire 1000", "exists"),
        *on(state, register.present, "holdfast_register_present", "zadd 1 x", "zscore x", "zrangebyscore 0 1"),
        *on(state, register.present, "holdfast_register_present", "zremrangebyscore 0 1", "pexpire 1000"),
        *on(state, register.wake_up("x"), "holdfast_register_wake", "get", "set 1 px 1000"),
        *on(several, keys.name, "", "hmget f", "hget f", "hdel f", "get", "set 1 px 1000", "incrby 1"),
        *on(
            several,
            shared.holders,
            "holdfast_holders",
            "hset f 1",
            "hget f",
            "hgetall",
            "hdel f",
            "pexpire 1000",
            "del",
        ),
        *on(several, shared.broken, "holdfast_broken", "set 1 px 1000", "exists"),
        *of_shared(shared.timeout_of("x"), "set 1 px 1000", "pttl", "del"),
        *of_shared(keys.timeouts, "zadd 1 x", "zrem x", "zcard", "zmscore x", "zrange 0 0", "zrangebyscore 0 1"),
        *of_shared(keys.timeouts, "pexpire 1000", "persist", "exists"),
        *on(several, keys.queue, "holdfast_queue", "llen"),
        *on_channel(further, shared.rwlock_channel, "redisson_rwlock"),
        *on_channel(further, shared.permits_channel, "redisson_sc"),
        *on_channel(further, register.register, "holdfast_register"),
        *on_channel(further, register.wake_up("x"), "holdfast_register_wake"),
        Need(Purpose.LISTING, ("scan", "0")),
        *on(Purpose.LISTING, keys.name, "", "type"),
        Need(Purpose.REPLICAS, ("wait", "0", "1")),
        *(_of_clusters(keys.channel, prefixed("holdfast_wake", name), namespace) if clustered else ()),
    ]


def _of_clusters(channel: str, wake: str, namespace: str) -> list[Need]:
    pattern = f"&redisson_lock__channel:{{{namespace}:*" if namespace else "&redisson_lock__channel:*"
    return [
        Need(Purpose.LOCKS, ("cluster", "slots")),
        Need(Purpose.LOCKS, ("asking",)),
        Need(Purpose.CHANNEL, ("pubsub", "shardnumsub")),
        Need(Purpose.CHANNEL, ("spublish", channel, "0"), pattern),
        Need(Purpose.CHANNEL, ("ssubscribe", channel), pattern),
        Need(Purpose.HAND_OVER, ("spublish", f"{wake}:x", "0"), "&holdfast_wake:*"),
        Need(Purpose.HAND_OVER, ("ssubscribe", f"{wake}:x"), "&holdfast_wake:*"),
    ]


def lacking(connection: Connection, wanted: list[Need], *, may_write: bool) -> tuple[Lack, ...]:
    """Which of these rights this user lacks. Raises Refused if that cannot be determined without writing."""
    try:
        user = connection.ask("ACL", "WHOAMI")
        connection.ask("ACL", "DRYRUN", user, "time")
    except Refused:
        if not may_write:
            raise
        refusals = _tried(connection, wanted)
    else:
        answers = connection.ask_all([("ACL", "DRYRUN", user, *need.words) for need in wanted])
        refusals = ["" if answer == "OK" else str(answer) for answer in answers]
    lacks = (_lack(need, words) for need, words in zip(wanted, refusals, strict=True) if words)
    return tuple(dict.fromkeys(lacks))


def _tried(connection: Connection, wanted: list[Need]) -> list[str]:
    """For each need, the server's refusal; empty if it is allowed."""
    keys = list(dict.fromkeys(need.words[1] for need in wanted if need.on_key))
    # Strings, where the engine uses a hash or a list: commands for those types fail and write nothing.
    strings = {key: ("set", key, "1", "px", str(_TRIED_TTL_MS)) for key in keys}
    refused = {
        key: answer.words
        for key, answer in zip(keys, connection.ask_all(list(strings.values())), strict=True)
        if isinstance(answer, Refused) and answer.code == "NOPERM"
    }
    # Keys that could not be prepared are not tried: a command might write there.
    tried = [need for need in wanted if need.words[1:2] not in [(key,) for key in refused]]
    pairs = [(strings[need.words[1]] if need.on_key else ("time",), need.words) for need in tried]
    answers = connection.ask_all([words for pair in pairs for words in pair])[1::2]
    connection.ask_all([("del", key) for key in keys])
    replies = {
        need: answer.words
        for need, answer in zip(tried, answers, strict=True)
        if isinstance(answer, Refused) and answer.code == "NOPERM"
    }
    return [replies.get(need, refused.get(need.words[1], "") if need.on_key else "") for need in wanted]


def _lack(need: Need, words: str) -> Lack:
    # "… to run the 'get' command", or else "… to access the 'x' key", "… one of the channels used as arguments".
    return Lack(need.purpose, need.right if "to run " in words or not need.pattern else need.pattern)
