"""The slot table, endless redirections, and skipped servers. Pure: no server needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.engines.base import RequestFailed
from holdfast.engines.redis.cluster.channel import ClusterChannel
from holdfast.engines.redis.cluster.keeper_channel import ClusterKeeperChannel
from holdfast.engines.redis.cluster.slots import HOPS, Place, Table, parse, slot_of
from holdfast.engines.redis.cluster.unresponsive import Unresponsive
from holdfast.engines.redis.dialect.replies import Redirected, TryAgain
from holdfast.engines.redis.dialect.requests import Call
from holdfast.engines.redis.scripts import PING

A, B, C = Place("a", 1), Place("b", 2), Place("c", 3)


# ---- the table


@pytest.mark.parametrize(
    "master, place",
    [
        ([b"10.0.0.7", 7000, b"id"], Place("10.0.0.7", 7000)),
        ([b"::1", 7000, b"id", {}], Place("::1", 7000)),
        ([b"node.example", 7000, b"id", {b"ip": b"10.0.0.7"}], Place("node.example", 7000)),
        ([None, 7000, b"id", {b"ip": b"10.0.0.7"}], Place("a", 7000)),
        ([b"", 7000, b"id"], Place("a", 7000)),
        ([b"?", 7000, b"id", {b"ip": b"10.0.0.7"}], Place("10.0.0.7", 7000)),
        ([b"?", 7000, b"id"], Place("a", 7000)),
        ([b"10.0.0.7", 0, b"id"], Place("10.0.0.7", 1)),
    ],
)
def test_place_of_a_server_is_parsed(master: list[Any], place: Place) -> None:
    assert parse([[5, 9, master, [b"replica", 9, b"id"]]], A) == [(5, 9, place)]


def test_new_slot_table_replaces_the_old_one() -> None:
    table = Table([A])
    assert table.stale
    table.learn([(0, 99, A), (100, 16383, B)])
    assert (table.owners[99], table.owners[100], table.stale) == (A, B, False)
    table.moved(99, C)
    assert (table.owners[98], table.owners[99], table.stale) == (A, C, True)
    table.learn([(0, 50, B)])
    assert (table.owners[50], table.owners[51], table.places()) == (B, None, (B,))


def test_server_with_failures_is_asked_last() -> None:
    table = Table([C, A])
    table.learn([(0, 99, A), (100, 199, B)])
    assert table.candidates() == [A, B, C]
    table.trouble_with(B)
    table.trouble_with(A)
    assert table.candidates() == [C, B, A]


def test_slot_table_is_requested_at_limited_rate() -> None:
    table = Table([A])
    assert table.may_refresh()
    assert not table.may_refresh()


# ---- redirections


class Node:
    """A server that returns the given answers in order and repeats the last one."""

    publish = "PUBLISH"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls = 0

    async def run(self, *_: Any) -> Any:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run_acknowledged(self, call: Call, replicas: int, timeout: float, *, asking: bool = False) -> Any:
        return await self.run(), replicas

    async def command(self, args: Sequence[Any], timeout: float) -> Any:
        return [[0, 16383, [b"a", 1, b"id"]]]

    async def run_tracked(self, calls: Sequence[Call], replicas: int, timeout: float) -> list[Any]:
        answers = []
        for _ in calls:
            try:
                answers.append(await self.run())
            except (RequestFailed, Redirected) as error:
                answers.append(error)
        return answers


class Group:
    """Asks one server after the other."""

    async def ask_each(
        self, requests: Sequence[tuple[Node, Sequence[Call]]], replicas: int, timeout: float
    ) -> list[list[Any]]:
        return [await node.run_tracked(calls, replicas, timeout) for node, calls in requests]


def channel(**nodes: Node) -> tuple[ClusterKeeperChannel[Any], Table]:
    """A cluster in which ``a`` has all slots."""
    places = {"a": A, "b": B, "c": C}
    by_place = {places[name]: node for name, node in nodes.items()}
    table = Table([A])
    group: Any = Group()
    made: ClusterKeeperChannel[Any] = ClusterKeeperChannel(group, by_place.__getitem__, table, "PUBLISH")
    table.learn([(0, 16383, A)])
    table.publish = "PUBLISH"
    return made, table


def moved(place: Place, *, once: bool = False, key: str = "job") -> Redirected:
    return Redirected("MOVED", slot=slot_of(key), host=place.host, port=place.port, once=once)


async def ask(cluster: ClusterChannel[Any]) -> Any:
    return await cluster.run(Call(PING, ("job",), ()), 1.0)


async def test_hundreds_of_callers_with_a_stale_table_scan_the_slots_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """During an outage that would block an event loop so long that no answer arrived in time."""
    walks: list[Table] = []
    walk = Table.places

    def counted(table: Table) -> Sequence[Place]:
        walks.append(table)
        return walk(table)

    monkeypatch.setattr(Table, "places", counted)
    cluster, table = channel(a=Node(b"here"))
    table.stale = True
    monkeypatch.setattr(table, "may_refresh", lambda: False)
    for _ in range(300):
        await cluster.refresh(1.0)
    assert len(walks) <= 1


async def test_endless_redirections_fail() -> None:
    a, b = Node(moved(B)), Node(moved(A))
    cluster, _ = channel(a=a, b=b)
    with pytest.raises(RequestFailed, match=f"do not agree who has slot {slot_of('job')}") as failed:
        await ask(cluster)
    assert not failed.value.may_have_happened
    assert a.calls + b.calls == HOPS + 1


async def test_renewals_with_endless_redirections_fail() -> None:
    cluster, _ = channel(a=Node(moved(B)), b=Node(moved(A)))
    (answer,) = await cluster.run_tracked([Call(PING, ("job",), ())], 0, 1.0)
    assert isinstance(answer, RequestFailed)
    assert str(answer) == f"the servers of the cluster do not agree who has slot {slot_of('job')}"


async def test_moved_updates_the_table_and_ask_does_not() -> None:
    cluster, table = channel(a=Node(moved(B)), b=Node(b"here"))
    assert await ask(cluster) == b"here"
    assert table.owners[slot_of("job")] == B
    cluster, table = channel(a=Node(moved(B, once=True)), b=Node(b"here"))
    assert await ask(cluster) == b"here"
    assert (table.owners[slot_of("job")], table.stale) == (A, False)


async def test_half_moved_slot_does_not_count_as_server_failure() -> None:
    cluster, table = channel(a=Node(TryAgain("TRYAGAIN", may_have_happened=False)))
    with pytest.raises(TryAgain):
        await ask(cluster)
    assert not table.stale
    cluster, table = channel(a=Node(RequestFailed("CLUSTERDOWN", may_have_happened=False)))
    with pytest.raises(RequestFailed):
        await ask(cluster)
    assert table.stale


async def test_failing_slots_do_not_prevent_renewals_of_others() -> None:
    """More calls than are sent together; the first of them fail for reasons of their own."""
    torn = TryAgain("TRYAGAIN", may_have_happened=False)
    down = RequestFailed("CLUSTERDOWN Hash slot not served", may_have_happened=False)
    for failures in ([torn] * 200, [down] * 199):
        node = Node(*failures, [1])
        cluster, _ = channel(a=node)
        answers = await cluster.run_tracked([Call(PING, (f"job-{n}",), ()) for n in range(500)], 0, 1.0)
        assert answers == [*failures, *[[1]] * (500 - len(failures))]
        assert node.calls == 500


async def test_failed_server_gets_no_further_calls_of_the_batch() -> None:
    node = Node(RequestFailed("no reply in time", may_have_happened=True))
    cluster, table = channel(a=node)
    answers = await cluster.run_tracked([Call(PING, (f"job-{n}",), ()) for n in range(500)], 0, 1.0)
    assert all(isinstance(answer, RequestFailed) for answer in answers)
    assert node.calls == 200
    assert table.stale


# ---- unresponsive servers


def test_an_unresponsive_server_is_skipped_in_this_round_and_the_next() -> None:
    servers, failure = Unresponsive(), RequestFailed("no reply in time", may_have_happened=True)
    servers.note(A, 0, failure)
    for _ in range(2):
        again = servers.expected_failure(A, 0)
        assert str(again) == str(failure)
        assert again is not None
        assert not again.may_have_happened, "no request was sent this time"
        assert servers.expected_failure(B, 0) is None
        servers.begin_round()
    assert servers.expected_failure(A, 0) is None


def test_missing_replicas_do_not_make_the_server_unresponsive() -> None:
    servers, failure = Unresponsive(), RequestFailed("only 0 of 1 replicas", may_have_happened=True)
    servers.note(A, 1, failure)
    assert servers.expected_failure(A, 0) is None
    assert servers.expected_failure(A, 1) is not None
    servers.note(A, 0, failure)
    servers.note(A, 2, failure)
    assert servers.expected_failure(A, 0) is not None
