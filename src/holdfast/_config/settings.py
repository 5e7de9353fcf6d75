"""The target of ``connect()`` without a URL: from ``configure``, the environment, a file, or the embedded default.

The first of these that names a URL wins:

1. ``holdfast.configure(...)``;
2. ``HOLDFAST_URL``, or the file named by ``HOLDFAST_URL_FILE``; each option of holdfast's own is ``HOLDFAST_`` and its
   name, as in ``HOLDFAST_TTL``;
3. the TOML file named by ``HOLDFAST_CONFIG``; ``HOLDFAST_PROFILE`` (or its key ``profile``) chooses a profile;
4. the embedded engine, to which the HOLDFAST_* options of 2 apply as well.

``connect(profile=…)`` and ``configure(profile=…)`` name a profile of the file, and so a target: it wins over the
others. Keywords of a ``configure`` without a URL override 2, 3 and 4. Refused, not ignored: HOLDFAST_* options beside a
file, a variable that is set but empty, a HOLDFAST_* that is not read, an unknown key. Files are never searched for.
Each of these could put two hosts on different engines by accident.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast._config import environment as env
from holdfast._config import file, parameters
from holdfast._config.configured import Configured, configured, set_configured
from holdfast._config.default import Default, checked
from holdfast._config.targets import Target, parse_target
from holdfast._config.url_file import read_url
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.connect_options import ConnectOptions, DriverClient


def configure(url_or_client: str | DriverClient | None = None, **options: Unpack[ConnectOptions]) -> None:
    """Set the default of this process for ``connect()`` and ``@holdfast.locked``; without arguments, reset it.

    Takes the arguments of ``connect`` and validates them now. A ``profile`` is validated with the settings file, which
    is read again for each ``connect()``. Existing clients are not changed.
    """
    profile = options.get("profile")
    keywords = {name: value for name, value in options.items() if name != "profile"}
    check_profile(profile, beside=url_or_client)
    # A wrong argument should raise here, not at the first lock.
    if profile is not None:
        default = _from_file(env.read(os.environ), profile, "configure(profile=…)")
        parse_target(default.url, default.keywords | keywords)
    elif url_or_client is not None:
        parse_target(url_or_client, keywords)
    else:  # the engine is not known yet: only holdfast's own keywords can be checked
        parse_target(None, {name: value for name, value in keywords.items() if name in parameters.OWN})
    set_configured(Configured(url_or_client, profile, keywords))


def resolve_default(environment: Mapping[str, str] = os.environ, *, profile: str | None = None) -> Default:
    """The default target of ``connect(profile=…)``, or of ``connect()`` without a URL, at present.

    Reads the environment and perhaps files; connects to nothing.
    """
    chosen = configured()
    keywords = dict(chosen.keywords)
    origins = dict.fromkeys(keywords, "configure()")
    if chosen.url is not None:
        if profile is None:
            return Default(chosen.url, keywords, "configure", origins | {"url": "configure()"})
        keywords, origins = {}, {}  # they belong to that URL
    if profile is not None:
        found = _from_file(env.read(environment), profile, "connect(profile=…)")
    elif chosen.profile is not None:
        found = _from_file(env.read(environment), chosen.profile, "configure(profile=…)")
    else:
        found = _from_environment(env.read(environment))
    return found._replace(keywords=found.keywords | keywords, origins={**found.origins, **origins})


def resolve_target(url_or_client: Any, keywords: Mapping[str, Any]) -> tuple[Target, Default | None]:
    """The target of ``connect(url_or_client, **keywords)``; and the default, if that is the target."""
    profile = keywords.get("profile")
    keywords = {name: value for name, value in keywords.items() if name != "profile"}
    check_profile(profile, beside=url_or_client)
    if url_or_client is not None:
        return parse_target(url_or_client, keywords), None
    default = resolve_default(profile=profile)
    return parse_target(default.url, default.keywords | keywords), default


def check_profile(profile: object, *, beside: object) -> None:
    """Refuse an invalid name of a profile, and a profile beside a URL or client: each of them is a target."""
    if profile is None:
        return
    if not isinstance(profile, str):
        raise TypeError(f"profile is a {type(profile).__name__}: give the name of a profile")
    if not profile.strip():
        raise UsageError("profile is empty; name a profile of the settings file, or leave it out")
    if beside is not None:
        raise UsageError("a URL (or client) and a profile are both given; each names what to connect to: give one")


def _from_environment(given: env.Variables) -> Default:
    keywords = given.keywords()
    origins = {name: f"environment variable {env.variable(name)}" for name in keywords}
    if given.url is not None:
        origins["url"] = "environment variable HOLDFAST_URL"
        return Default(given.url, checked(given.url, keywords, "HOLDFAST_URL"), "environment", origins)
    if given.url_file is not None:
        url = read_url(given.url_file, "HOLDFAST_URL_FILE")
        origins["url"] = f"file {given.url_file!r} (environment variable HOLDFAST_URL_FILE)"
        where = f"file {given.url_file!r} (HOLDFAST_URL_FILE)"
        return Default(url, checked(url, keywords, where), "environment", origins)
    if given.config is not None:
        return _from_file(given, given.profile, "environment variable HOLDFAST_PROFILE")
    return Default(None, checked(None, keywords, "HOLDFAST_*"), "embedded", origins)


def _from_file(given: env.Variables, profile: str | None, chosen_by: str) -> Default:
    if given.config is None:
        raise UsageError(f"profile {profile!r} is chosen, but HOLDFAST_CONFIG does not name the file that defines it")
    if given.options and given.url is None and given.url_file is None:
        variables = ", ".join(env.variable(name) for name in sorted(given.options))
        raise UsageError(
            f"{variables} and HOLDFAST_CONFIG are both set: the options belong in the file, or set HOLDFAST_URL"
        )
    return file.load(given.config, profile, chosen_by)
