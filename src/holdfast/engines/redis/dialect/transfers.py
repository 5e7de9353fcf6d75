"""``transfer.lua``: how a held lock is given to another claim. No I/O."""

from __future__ import annotations

from typing import Any

from holdfast.engines.base import Claim, Found, Granted
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.dialect.leases import decode_release, tombstone_for
from holdfast.engines.redis.dialect.packing import milliseconds
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.scripts import TRANSFER


def encode_transfer(claim: Claim, owner: str, from_owner: str, counter_ttl: int) -> Call:
    """``owner``: under which the claim is to hold it. ``counter_ttl``: of the fencing counter, in ms; 0: none."""
    args = (
        owner,
        milliseconds(claim.ttl),
        claim.tokens,
        claim.description,
        counter_ttl,
        from_owner,
        milliseconds(tombstone_for(claim.ttl)),
    )
    return Call(TRANSFER, keys_of(claim.name).join, args)


def decode_transfer(reply: Any) -> Granted | Found:
    return decode_release(reply) if reply.__class__ is int else Granted(int(reply))
