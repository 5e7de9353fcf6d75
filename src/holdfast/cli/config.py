"""``holdfast config``: every setting that ``connect()`` would use, and where it was set. Connects to nothing."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast._config import parameters
from holdfast.cli import connecting
from holdfast.cli.exit_codes import OK, SettingsError
from holdfast.cli.output import visible, write_json, write_result
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._config.default import Default
    from holdfast._config.targets import Target
    from holdfast.engines.base import Engine


class Setting(NamedTuple):
    """One value, without secrets, and where it was set."""

    name: str
    value: Any
    origin: str


def configure(parser: argparse.ArgumentParser) -> None:
    connecting.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.epilog = "Exit code: 0; 78 if a setting is wrong, or the engine's driver is not installed."


def run(arguments: argparse.Namespace) -> int:
    """0, or SettingsError where ``connect()`` would raise; for a missing driver, after printing the settings."""
    target, default = connecting.find_target(arguments)
    settings = list(_settings(arguments, target, default))
    engine, missing = _engine(target)
    if arguments.json:
        write_json(_as_data(settings, target, engine))
    else:
        write_result("\n".join(_as_lines(settings, target, engine)))
    if missing is not None:
        raise SettingsError(str(missing)) from missing
    return OK


def _engine(target: Target) -> tuple[Engine, None] | tuple[None, UsageError]:
    from holdfast.engines.registry import make_engine

    try:
        return make_engine(target), None
    except UsageError as missing:
        return None, missing


def _settings(arguments: argparse.Namespace, target: Target, default: Default | None) -> Iterator[Setting]:
    """All settings, the target first, then holdfast's own options, then those of the engine that are set."""
    origins = dict(default.origins) if default is not None else {"url": "--url"}
    if arguments.profile is not None:
        origins["profile"] = "--profile"
    if arguments.namespace is not None:
        origins["namespace"] = "--namespace"
    url = arguments.url if default is None else default.url
    yield Setting("profile", default and default.profile, origins.get("profile", "default"))
    file = default and default.file
    yield Setting("file", file, "environment variable HOLDFAST_CONFIG" if file else "default")
    yield from _of_url(url, origins)
    in_url = _written_in(url, default)
    for name in [field.name for field in dataclasses.fields(target.options) if field.name in parameters.OWN]:
        by_url = f"URL parameter {name}" if name in in_url.own else "default"
        yield Setting(name, getattr(target.options, name), origins.get(name, by_url))
    yield from _of_engine(in_url.given, default, origins, secret=_is_third_party(target))


def _of_url(url: str | None, origins: Mapping[str, str]) -> Iterator[Setting]:
    from holdfast.cli.masking import masked_secret_url, masked_url

    if url is None:
        yield Setting("url", "sqlite:", "default")
    else:
        yield Setting("url", (masked_secret_url if _kept_secret(origins) else masked_url)(url), origins["url"])


def _kept_secret(origins: Mapping[str, str]) -> bool:
    """Whether the URL was read from a file of its own, as mounted secrets are."""
    return "url_file" in origins.get("url", "").lower()  # url_file = "…", or HOLDFAST_URL_FILE


class _Written(NamedTuple):
    own: Mapping[str, str]
    given: Mapping[str, str]


def _written_in(url: str | None, default: Default | None) -> _Written:
    from holdfast._config import targets

    keywords = {} if default is None else {k: v for k, v in default.keywords.items() if k not in parameters.OWN}
    parsed = targets.parse_url(url, keywords) if url is not None else None
    return _Written(parsed.own, parsed.given) if parsed is not None else _Written({}, {})


def _is_third_party(target: Target) -> bool:
    from holdfast.engines import registry

    return target.engine not in registry.NAMES


def _of_engine(
    given: Mapping[str, str], default: Default | None, origins: Mapping[str, str], *, secret: bool
) -> Iterator[Setting]:
    """The options of the engine and its driver: those in the URL, and those of the settings file.

    ``secret``: which of them are secrets is not known, so all are masked.
    """
    from holdfast.cli.masking import MASK, is_secret

    for name, text in sorted(given.items()):
        hidden = secret or is_secret(name) or (name == "username" and _kept_secret(origins))
        yield Setting(name, MASK if hidden else text, "URL")
    keywords = default.keywords if default is not None else {}
    for name, value in sorted(keywords.items()):
        if name not in parameters.OWN and name not in given:
            yield Setting(name, MASK if secret or is_secret(name) else value, origins[name])


def _as_data(settings: list[Setting], target: Target, engine: Engine | None) -> dict[str, Any]:
    return {
        "engine": target.engine,
        "settings": {name: {"value": _plain(value), "origin": origin} for name, value, origin in settings},
        "guarantees": dataclasses.asdict(engine.guarantees) if engine is not None else None,
    }


def _plain(value: Any) -> Any:
    """``value`` for JSON; values that only TOML has (dates, inf), and lists, as text."""
    known = value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
    return value if known else str(value)


def _as_lines(settings: list[Setting], target: Target, engine: Engine | None) -> Iterator[str]:
    rows = [(setting.name, visible(_text(setting.value)), setting.origin) for setting in settings]
    names, values = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, value, origin in rows:
        yield f"{name:{names}}  {value:{values}}  {origin}"
    yield ""
    yield f"engine: {target.engine}"
    if engine is not None:
        for promise, given in dataclasses.asdict(engine.guarantees).items():
            yield f"  {promise:17}  {_text(given)}"


def _text(value: Any) -> str:
    """A value as a settings file would have it; durations are seconds."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) or '""'
