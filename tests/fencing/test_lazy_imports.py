"""``import holdfast.fencing`` loads no driver; every public name is still available."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast import fencing

_PROGRAM = """
import sys
import holdfast.fencing
heavy = {"redis", "obstore", "sqlalchemy", "psycopg", "django"} & set(sys.modules)
assert not heavy, heavy
assert {"http", "RedisFence", "ObjectFence", "from_env"} <= set(dir(holdfast.fencing))
"""


def test_importing_the_package_loads_no_driver() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", _PROGRAM], check=True, timeout=30)


@pytest.mark.parametrize("name", fencing.__all__)
def test_every_public_name_is_available(name: str) -> None:
    assert getattr(fencing, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoFence"):
        fencing.NoFence  # noqa: B018
