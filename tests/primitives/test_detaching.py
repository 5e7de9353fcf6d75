"""Detached locks: tickets, lost replies at each step, interrupts, secrets."""

from __future__ import annotations

import gc
import logging
import pickle
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from holdfast._runtime.blocking import run
from holdfast.primitives import detaching
from tests.primitives.lost_replies import Loss, lose
from tests.support.signal_injector import InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually


@pytest.fixture
def url() -> str:
    return f"memory:{uuid.uuid4().hex}"


@pytest.fixture
def client(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url, request_timeout=0.1, unavailable_after=0.05) as client:
        yield client


@pytest.fixture
def unhurried(url: str) -> Iterator[holdfast.Client]:
    """A client that asks again however slow the machine is."""
    with holdfast.connect(url) as unhurried:
        yield unhurried


@pytest.fixture
def other(url: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(url) as other:
        yield other


def is_free(client: holdfast.Client, name: str = "a") -> bool:
    return not client.inspect(name).holders


# ---- tickets


def test_ticket_says_what_it_is_for_and_keeps_its_secret(client: holdfast.Client) -> None:
    text = client.lock("a", ttl=7).acquire().detach()
    ticket = detaching.parse(text)
    assert (ticket.engine, ticket.namespace, ticket.name, ticket.ttl) == ("memory", "", "a", 7)
    assert len(ticket.secret) >= 40
    assert ticket.secret not in repr(ticket)
    assert client.inspect("a").holders[0].owner == ticket.owner
    client.attach(text).release()


def test_every_ticket_has_another_secret(client: holdfast.Client) -> None:
    secrets = set()
    for _ in range(3):
        text = client.lock("a").acquire().detach()
        secrets.add(detaching.parse(text).secret)
        client.attach(text).release()
    assert len(secrets) == 3


@pytest.mark.parametrize("text", ["", "holdfast-ticket-1.", "holdfast-ticket-1.e30", "holdfast-ticket-2.e30", 7, None])
def test_text_that_is_no_ticket_is_refused(client: holdfast.Client, text: str) -> None:
    with pytest.raises(holdfast.UsageError, match="attach\\(\\) takes a ticket"):
        client.attach(text)


def test_part_of_a_ticket_is_refused_and_not_shown(client: holdfast.Client) -> None:
    text = client.lock("a").acquire().detach()
    with pytest.raises(holdfast.UsageError) as caught:
        client.attach(text[:-9])
    assert text[20:-20] not in str(caught.value)
    client.attach(text).release()


def test_ticket_of_another_kind_of_engine_is_refused(client: holdfast.Client, tmp_path: Path) -> None:
    text = client.lock("a").acquire().detach()
    elsewhere = holdfast.connect(f"sqlite://{tmp_path}/locks.db")
    with elsewhere, pytest.raises(holdfast.UsageError, match="for a memory engine"):
        elsewhere.attach(text)
    client.attach(text).release()


def test_ticket_of_another_store_is_not_held_there(client: holdfast.Client) -> None:
    text = client.lock("a").acquire().detach()
    with holdfast.connect("memory:another") as elsewhere, pytest.raises(holdfast.NotHeld):
        elsewhere.attach(text)
    client.attach(text).release()


def test_no_secret_is_logged_or_part_of_an_error(
    client: holdfast.Client, other: holdfast.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = client.lock("a").acquire().detach()
    other.attach(text).release()
    with pytest.raises(holdfast.NotHeld) as used:
        other.attach(text)
    second = client.lock("a").acquire().detach()
    losses: list[Loss] = ["request"] * 50
    lose(client, "transfer", *losses)
    with pytest.raises(holdfast.OutcomeUnknown) as unknown:
        client.attach(second)
    shown = caplog.text + str(used.value) + str(unknown.value) + repr(unknown.value.__cause__)
    for each in (text, second):
        assert detaching.parse(each).secret not in shown
        assert each not in shown
    other.attach(second).release()


def test_lease_and_its_pickling_error_name_the_way(client: holdfast.Client) -> None:
    with client.lock("a") as lease, pytest.raises(holdfast.UsageError, match=r"detach\(\)"):
        pickle.dumps(lease)


def test_retained_lock_cannot_be_detached(client: holdfast.Client) -> None:
    lease = client.lock("a").acquire()
    lease._keep_for(30)
    with pytest.raises(holdfast.UsageError, match="at_least"):
        lease.detach()
    assert lease.held
    lease.release()


# ---- lost replies


def test_lost_reply_of_a_detach_is_asked_for_again(unhurried: holdfast.Client, other: holdfast.Client) -> None:
    lease = unhurried.lock("a").acquire()
    requests = lose(unhurried, "transfer", "reply", "request", "reply")
    text = lease.detach()
    assert requests.calls == 4
    attached = other.attach(text)
    assert attached.token > lease.token
    attached.release()


def test_lost_reply_of_an_attach_is_asked_for_again(unhurried: holdfast.Client, other: holdfast.Client) -> None:
    text = other.lock("a").acquire().detach()
    lose(unhurried, "transfer", "reply", "request", "reply")
    with unhurried.attach(text) as lease:
        assert [holder.owner for holder in other.inspect("a").holders] == [lease.owner]
        with pytest.raises(holdfast.NotHeld):
            other.attach(text)
    assert is_free(other)


@pytest.mark.parametrize("loss", ["reply", "request"])
def test_detach_without_an_answer_is_unknown_and_the_lock_is_released(
    client: holdfast.Client, other: holdfast.Client, loss: Loss
) -> None:
    lease = client.lock("a").acquire()
    lose(client, "transfer", *[loss] * 50)
    with pytest.raises(holdfast.OutcomeUnknown) as caught:
        lease.detach()
    assert caught.value.operation == "detach"
    assert not lease.held
    eventually(lambda: is_free(other))
    again = other.lock("a").acquire(timeout=5)
    assert again.token > lease.token
    again.release()


@pytest.mark.parametrize("loss", ["reply", "request"])
def test_attach_without_an_answer_is_unknown_and_leaves_no_holder_without_a_ticket(
    client: holdfast.Client, other: holdfast.Client, loss: Loss
) -> None:
    text = other.lock("a").acquire().detach()
    lose(client, "transfer", *[loss] * 50)
    with pytest.raises(holdfast.OutcomeUnknown) as caught:
        client.attach(text)
    assert caught.value.operation == "attach"
    if loss == "request":  # the ticket was not used
        other.attach(text).release()
    eventually(lambda: is_free(other))


def test_late_duplicate_of_a_detach_does_not_take_the_lock_from_its_next_holder(
    unhurried: holdfast.Client, other: holdfast.Client
) -> None:
    lease = unhurried.lock("a").acquire()
    requests = lose(unhurried, "transfer", "late", "reply")
    with other.attach(lease.detach()) as attached:
        run(requests.deliver())
        assert [holder.owner for holder in other.inspect("a").holders] == [attached.owner]
        assert attached.held


def test_late_duplicate_of_an_attach_does_not_take_the_lock_from_its_next_holder(
    unhurried: holdfast.Client, other: holdfast.Client
) -> None:
    text = other.lock("a").acquire().detach()
    requests = lose(unhurried, "transfer", "late", "reply")
    unhurried.attach(text).release()
    with other.lock("a") as lease:
        run(requests.deliver())
        assert [holder.owner for holder in other.inspect("a").holders] == [lease.owner]


# ---- interrupts


@pytest.mark.usefixtures("no_warnings_of_dropped_objects")
@pytest.mark.parametrize("step", ["detach", "attach"])
def test_interrupted_at_any_instruction_the_lock_has_one_owner_or_is_free(step: str) -> None:
    number = 0
    while True:
        url = f"memory:{uuid.uuid4().hex}"
        injector = SignalInjector(number)
        with holdfast.connect(url) as client, holdfast.connect(url) as other:
            lease = client.lock("a").acquire()
            text = lease.detach() if step == "attach" else ""
            try:
                with injector:
                    if step == "attach":
                        lease = client.attach(text)
                    else:
                        text = lease.detach()
            except InjectedInterrupt:
                pass
            else:
                assert lease.held == (step == "attach")
            del lease
            gc.collect(0)
            if text:
                with suppress(holdfast.NotHeld):
                    other.attach(text).release()  # it may not have been used
            free = other.lock("a").try_acquire(timeout=10)
            assert free is not None, f"left held by a signal at {injector.interrupted_at}"
            free.release()
        if not injector.interrupted_at:
            break
        number += 1
    assert number > 40
