"""The settings file: TOML, keys shared by all profiles, and ``[profiles.NAME]``.

Names of keys are checked in every profile, chosen or not: a typo should be found in development, not when the profile
is first used. Values, and the files that ``url_file`` names, are checked for the chosen profile only: the others may be
for other hosts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, Final

from holdfast._config import parameters
from holdfast._config.default import Default, checked
from holdfast._config.options import option_from_text
from holdfast._config.small_file import read_text
from holdfast._config.url_file import read_url
from holdfast._config.url_parts import cut
from holdfast.engines import registry
from holdfast.errors import UsageError

_TARGET: Final = frozenset({"url", "url_file"})


def load(path: str, profile: str | None, chosen_by: str) -> Default:
    """The settings in the file ``path``. ``profile`` is chosen by ``chosen_by``; if None, by the file's own key."""
    where = f"settings file {path!r} (HOLDFAST_CONFIG)"
    table = _parse(path, where)
    profiles = table.pop("profiles", {})
    named = table.pop("profile", None)
    if profile is None and named is not None:
        profile, chosen_by = named, f"file {path!r}"
    _check_names(table, ("profile", "profiles"), where)
    _check_profiles(profiles, where)
    origins = dict.fromkeys(table, f"file {path!r}")
    if profile is not None:
        chosen = _profile(profiles, profile, where)
        if _TARGET & chosen.keys():
            table = {name: value for name, value in table.items() if name not in _TARGET}
        table |= chosen
        origins |= dict.fromkeys(chosen, f"file {path!r} [profiles.{profile}]") | {"profile": chosen_by}
    url, origins["url"] = _url(table, origins, path, where, profiles=profiles)
    keywords = {name: _from_toml(name, value, where) for name, value in table.items() if name not in _TARGET}
    return Default(url, checked(url, keywords, where), "file", origins, profile, path)


def _parse(path: str, where: str) -> dict[str, Any]:
    import tomllib  # here, not above: few programs have a settings file

    text = read_text(path, where, "settings")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{where} is not valid settings: it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        # Not chained: a decoder may quote the line it failed on, and that line may contain a password.
        position = str(error).rpartition("(at ")[2].rstrip(")")
        raise UsageError(f"{where} is not valid TOML ({position})") from None


def _check_profiles(profiles: object, where: str) -> None:
    if not isinstance(profiles, dict):
        raise UsageError(f"{where}: a profile is chosen by its name and is a table [profiles.NAME]")
    for name, table in profiles.items():
        if not isinstance(table, dict):
            raise UsageError(f"{where}: profile {name!r} is not a table; write [profiles.{name}]")
        _check_names(table, (), f"{where}, profile {name!r}")


def _check_names(table: Mapping[str, Any], more: Collection[str], where: str) -> None:
    """UsageError for a key that is not known, with the nearest, or for a table with two targets."""
    known = _TARGET | parameters.OWN | _options_beside(table.get("url")) | frozenset(more)
    for name in () if _is_third_party(table.get("url")) else table:
        if name not in known:
            guess = parameters.nearest(name, known)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(sorted(known))}"
            raise UsageError(f"{where}: unknown key {name!r}; {hint}")
    if table.keys() >= _TARGET:
        raise UsageError(f"{where}: url and url_file are both given; remove one of them")


def _options_beside(url: object) -> frozenset[str]:
    """The options of the engine of ``url``; of all built-in engines, if the engine is not known."""
    row = registry.SCHEMES.get(cut(url).scheme) if isinstance(url, str) else None
    rows = (row,) if row is not None else registry.BUILT_IN
    return frozenset().union(*(registry.load(each.url).option_names(each.name) for each in rows))


def _is_third_party(url: object) -> bool:
    """Whether the engine of ``url`` is another distribution's. Its factory validates the names of its options."""
    return isinstance(url, str) and (scheme := cut(url).scheme) != "" and registry.has_third_party(scheme)


def _profile(profiles: Mapping[str, Any], chosen: object, where: str) -> dict[str, Any]:
    if not isinstance(chosen, str):
        raise UsageError(f"{where}: a profile is chosen by its name and is a table [profiles.NAME]")
    if chosen not in profiles:
        guess = parameters.nearest(chosen, profiles)
        known = f"there are: {', '.join(map(repr, sorted(profiles)))}" if profiles else "it has none"
        raise UsageError(f"{where}: unknown profile {chosen!r}; {f'did you mean {guess!r}?' if guess else known}")
    table: dict[str, Any] = profiles[chosen]
    return table


def _url(
    table: Mapping[str, Any], origins: Mapping[str, str], path: str, where: str, *, profiles: Collection[str]
) -> tuple[str, str]:
    """The URL, and its origin."""
    for name in _TARGET & table.keys():
        if not isinstance(table[name], str):
            raise UsageError(f"{where}: {name} is not a text")
    if "url" in table:
        return table["url"], origins["url"]
    if "url_file" not in table:
        known = ", ".join(map(repr, sorted(profiles)))
        choice = f", or choose a profile with profile = '…' or HOLDFAST_PROFILE: there are {known}" if profiles else ""
        raise UsageError(f"{where} names no url; add url = '…'{choice}")
    # Relative to the settings file, never to the current directory, which differs between a shell and a service.
    target = os.path.join(os.path.dirname(os.path.abspath(path)), table["url_file"])
    return read_url(target, f"url_file in {where}"), f"file {target!r} (url_file in {origins['url_file']})"


def _from_toml(name: str, value: Any, where: str) -> Any:
    """A text of one of our own options is converted, as in a URL: "30s", "none"; TOML's own types are kept."""
    return option_from_text(name, value, where=where) if name in parameters.OWN and isinstance(value, str) else value
