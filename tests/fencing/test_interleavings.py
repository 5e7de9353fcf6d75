"""No order of guards, checks and writes admits an older token: explored step by step against a model."""

from __future__ import annotations

import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.errors import StaleToken, UsageError
from holdfast.fencing import Fence, FileFence, Guard, MemoryFence
from holdfast.fencing.rule import Bearer

_tokens = st.integers(0, 8)
_owners = st.sampled_from(["a", "b"])


class Interleavings(RuleBasedStateMachine):
    """One resource, many bearers. All steps run on one thread, where "occupied" is a UsageError instead of a wait."""

    fence: Fence

    def __init__(self) -> None:
        super().__init__()
        self.inside: tuple[Guard, Bearer] | None = None
        self.newest: Bearer | None = None
        self.written: list[int] = []

    @rule(token=_tokens, owner=_owners)
    def come(self, token: int, owner: str) -> None:
        guard = self.fence.guard("r", token, owner)
        if self.admitted(Bearer(token, owner), guard.__enter__):
            self.inside = guard, Bearer(token, owner)

    @rule(token=_tokens, owner=_owners)
    def check(self, token: int, owner: str) -> None:
        self.admitted(Bearer(token, owner), lambda: self.fence.check("r", token, owner))

    def admitted(self, incoming: Bearer, enter: object) -> bool:
        assert callable(enter)
        try:
            enter()
        except UsageError:
            assert self.inside is not None
            return False
        except StaleToken:
            assert self.newest is not None
            assert incoming.token <= self.newest.token
            assert incoming != self.newest
            return False
        assert self.inside is None
        assert self.newest is None or incoming.token > self.newest.token or incoming == self.newest
        self.newest = incoming
        return True

    @precondition(lambda self: self.inside is not None)
    @rule()
    def write(self) -> None:
        assert self.inside is not None
        self.written.append(self.inside[1].token)

    @precondition(lambda self: self.inside is not None)
    @rule()
    def leave(self) -> None:
        assert self.inside is not None
        self.inside[0].__exit__(None, None, None)
        self.inside = None

    @invariant()
    def writes_never_go_back(self) -> None:
        assert self.written == sorted(self.written)

    def teardown(self) -> None:
        if self.inside is not None:
            self.leave()


class MemoryInterleavings(Interleavings):
    @initialize()
    def make(self) -> None:
        self.fence = MemoryFence()


class FileInterleavings(Interleavings):
    @initialize()
    def make(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.fence = FileFence(self.directory.name, durable=False)

    @rule()
    def another_process_would_see_the_same(self) -> None:
        self.fence = FileFence(self.directory.name, durable=False)

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestMemory = MemoryInterleavings.TestCase
TestFile = FileInterleavings.TestCase
TestMemory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestFile.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
