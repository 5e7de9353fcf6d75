"""A settings file, and the environment that names it."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path, text: str) -> dict[str, str]:
    path = folder / "holdfast.toml"
    path.write_text(text, "utf-8")
    return {"HOLDFAST_CONFIG": str(path)}
