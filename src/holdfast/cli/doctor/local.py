"""The engines without a server."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._config.targets import Target
from holdfast.cli.doctor.finding import Finding, notice
from holdfast.errors import UsageError


def examine(target: Target) -> list[Finding]:
    """Findings about ``memory:`` or ``sqlite:``."""
    return list(_memory() if target.engine == "memory" else _sqlite(target))


def _memory() -> Iterator[Finding]:
    yield notice(
        "scope",
        "",
        "locks are in this process's memory: no other process sees them, and they end with it",
        "use sqlite: for several processes of one host, a server for several hosts",
    )


def _sqlite(target: Target) -> Iterator[Finding]:
    try:
        from holdfast.cli.doctor import lock_file
    except ImportError as missing:  # some distributions have it in a package of its own
        raise UsageError("this Python has no sqlite3: install it, or use a server's URL") from missing
    return lock_file.examine(target)
