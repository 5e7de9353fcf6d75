"""Contenders in a process with Curator, one for each recipe: see ``tests/interop/holders.py``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tests.interop.curator import Java, Recipe, path_of
from tests.interop.holders import Granted
from tests.support.waiting import eventually

RECIPES: Final[tuple[Recipe, ...]] = ("mutex", "write", "read", "permits")
LATCH: Final = "latch"
KINDS: Final = (*RECIPES, LATCH)

_SOON: Final = 20.0
_LONGEST: Final = 60.0


def _excluding(recipe: Recipe) -> Recipe:
    return "write" if recipe == "read" else recipe


class JavaWaiters:
    def __init__(self, java: Java, kinds: Sequence[str] = KINDS) -> None:
        self._java, self._kinds = java, kinds
        self._recipes = [recipe for recipe in RECIPES if recipe in kinds]

    def wait(self) -> None:
        for recipe in self._recipes:
            self._java.acquire(recipe, path_of(recipe), recipe=_excluding(recipe), size=1)
        self._java.lead(LATCH, path_of(LATCH), timeout=_LONGEST)
        for name in self._kinds:
            eventually(partial(self._java.sleeps, name), within=_SOON, event=f"a waiter for {name}")

    def granted(self) -> dict[str, Granted]:
        found = {}
        for name in self._kinds:
            held = self._java.held(name, _LONGEST)
            assert held is not None, name
            found[name] = Granted(held.at, held.token)
        return found

    def check_held(self) -> None:
        """Others of its process do not get them."""
        for recipe in self._recipes:
            taken = self._java.take("other", path_of(recipe), recipe=_excluding(recipe), size=1, timeout=0.2)
            assert taken is None, recipe
        assert self._java.leads(LATCH)

    def release(self) -> None:
        for recipe in self._recipes:
            self._java.release(recipe, _excluding(recipe))
        self._java.resign(LATCH)


class JavaVictim:
    def __init__(self, java: Java) -> None:
        self._java = java
        self.kill, self.freeze, self.wake = java.kill, java.freeze, java.wake

    def hold(self) -> dict[str, int]:
        tokens: dict[str, int] = {}
        for recipe in RECIPES:
            held = self._java.take(recipe, path_of(recipe), recipe=recipe, size=1)
            assert held is not None, recipe
            tokens[recipe] = held.token
        self._java.lead(LATCH, path_of(LATCH))
        held = self._java.held(LATCH)
        assert held is not None
        return {**tokens, LATCH: held.token}

    def check_lost(self) -> None:
        """Only the latch notices the end of its session."""
        assert self._java.holds(path_of("mutex")), "if Curator notices now, say so in share-with-curator.md"
        eventually(lambda: not self._java.leads(LATCH), within=_SOON)
        for recipe in RECIPES:
            self._java.release(recipe, recipe)
        self._java.resign(LATCH)
