"""What all commands that connect share: the options that select the engine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli.exit_codes import SettingsError
from holdfast.errors import LockError

if TYPE_CHECKING:
    from holdfast._config.default import Default
    from holdfast._config.targets import Target
    from holdfast.client import Client


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--url``, ``--profile`` and ``--namespace``."""
    parser.add_argument("--url", metavar="URL", help="as for connect(); default: the configured one")
    parser.add_argument("--profile", metavar="NAME", help="a profile of the file named by HOLDFAST_CONFIG")
    parser.add_argument("--namespace", metavar="TEXT", help="put before every name; default: the configured one")


def connect(arguments: argparse.Namespace) -> Client:
    """A client for the options of the command line, else for the configured default. Does no I/O.

    Raises SettingsError for a wrong URL or setting, and for a driver that is not installed.
    """
    from holdfast.client import connect

    try:
        return connect(arguments.url, **_keywords(arguments))
    except (LockError, ValueError, TypeError) as error:
        raise SettingsError(str(error)) from error


def find_target(arguments: argparse.Namespace) -> tuple[Target, Default | None]:
    """What ``connect`` would connect to, found without the driver; and the default, if that is used."""
    from holdfast._config.settings import resolve_target

    try:
        return resolve_target(arguments.url, _keywords(arguments))
    except (LockError, ValueError, TypeError) as error:
        raise SettingsError(str(error)) from error


def _keywords(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {"profile": arguments.profile, "namespace": arguments.namespace}
    return {name: value for name, value in given.items() if value is not None}
