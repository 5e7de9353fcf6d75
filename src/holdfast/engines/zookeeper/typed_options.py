"""The options of ``zookeeper:``, for type checkers. A test compares the keys with what the parser accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from holdfast._config.common_options import CommonOptions, Credentials

if TYPE_CHECKING:
    import os

    from holdfast._config.durations import Duration


class ZooKeeperOwnOptions(TypedDict, total=False):
    """The options of ZooKeeper, without those of :mod:`holdfast._config.common_options`."""

    acl: Literal["open", "creator"]
    auth_data: Iterable[tuple[str, str]]
    ca: str | os.PathLike[str]
    certfile: str | os.PathLike[str]
    check_hostname: bool
    default_acl: Sequence[Any]
    keyfile: str | os.PathLike[str]
    keyfile_password: str
    randomize_hosts: bool
    sasl_mechanism: Literal["DIGEST-MD5", "GSSAPI"]
    sasl_options: Mapping[str, Any]
    sasl_password: str
    sasl_service: str
    sasl_username: str
    tick: Duration
    use_ssl: bool
    verify_certs: bool


class ZooKeeperOptions(CommonOptions, Credentials, ZooKeeperOwnOptions, total=False):
    """The options of ``zookeeper:``."""
