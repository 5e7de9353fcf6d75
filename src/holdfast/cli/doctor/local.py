"""The engines without a server."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._config.targets import Target
from holdfast.cli.doctor.finding import Finding, notice


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
    import holdfast.engines.sqlite.engine  # noqa: F401 -- raises UsageError if this Python has no sqlite3
    from holdfast.cli.doctor import lock_file

    return lock_file.examine(target)
