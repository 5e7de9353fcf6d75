"""Hides secrets in URLs and options before they are shown. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_plus

from holdfast._config import parameters, targets
from holdfast._config.url_parts import cut
from holdfast.engines import registry
from holdfast.engines.redis.options import SECRET

MASK: Final = "***"
#: ZooKeeper's options for credentials have other names.
_CREDENTIALS: Final = SECRET | {"auth_data", "sasl_options"}


def is_secret(name: str) -> bool:
    """Whether the value of the option ``name`` may be a secret, or contain one."""
    return name in _CREDENTIALS or "password" in name


def masked_url(url: str) -> str:
    """A valid ``url`` with the password of its user info, and secret parameters, replaced by a mask."""
    parts = cut(url)
    if "@" in parts.path or "@" in parts.query:
        return targets.redact(url)  # an unescaped '/' or '?' in a password shifts the parts
    user_info, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = user_info.partition(":")
    # Without a colon it may be a user name, or a token in its place: hide it.
    shown = f"{user}:{MASK}@" if colon else f"{MASK}@" if at else ""
    slashes = "//" if parts.netloc or url[len(parts.scheme) + 1 :].startswith("//") else ""
    known = parts.scheme in registry.SCHEMES  # which options of another distribution's engine are secrets is not known
    query = "&".join(_masked_parameter(raw, known) for raw in parts.query.split("&"))
    return f"{parts.scheme}:{slashes}{shown}{hosts}{parts.path}" + (f"?{query}" if query else "")


def masked_secret_url(url: str) -> str:
    """As ``masked_url``, for a URL that is itself a secret: the user name and the parameters are hidden, too."""
    scheme, separator, rest = targets.redact(url).partition("://")
    return f"{scheme}://{MASK}@{rest}" if separator and "@" in url else scheme + separator + rest


def _masked_parameter(raw: str, known: bool) -> str:
    name, equals, _ = raw.partition("=")
    own = unquote_plus(name) in parameters.OWN
    return f"{name}{equals}{MASK}" if is_secret(unquote_plus(name)) or not (known or own or not raw) else raw
