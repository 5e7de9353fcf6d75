"""The checks of an ensemble: pure functions from facts to findings. A new check also needs its name in a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.cli.doctor.finding import Finding, notice, ok, problem, warning
from holdfast.cli.doctor.zookeeper.facts import Ensemble, Server

#: The first with containers.
_OLDEST: Final = (3, 5, 1)
#: Of request_timeout.
_SLOW: Final = 0.25
#: With fewer ticks in a session, leases are valid for only a small part of it.
_TICKS_PER_SESSION: Final = 5


def judge(ensemble: Ensemble) -> list[Finding]:
    """All findings: first about all servers together, then server by server. An unreachable server has only one."""
    findings = [finding for check in _TOGETHER for finding in check(ensemble)]
    for server in ensemble.servers:
        checks = (_reachable,) if server.failure else _EACH
        findings += [finding for check in checks for finding in check(server, ensemble)]
    return findings


# -- all together ------------------------------------------------------------------------------------------------------


def _same(ensemble: Ensemble) -> Iterator[Finding]:
    for server in ensemble.servers:
        if server.stranger:
            yield problem(
                "agreement",
                "",
                f"{server.name} does not know of a lock that was taken at another host: it grants the same lock twice",
                "name servers of one ensemble only",
            )


def _number(ensemble: Ensemble) -> Iterator[Finding]:
    if any(server.mode == "standalone" for server in ensemble.alive):
        yield warning(
            "ensemble",
            "",
            "one server alone: while it is down no lock is granted, and what is held is reported as lost",
            "use an ensemble of three or five",
        )
        return
    voters = ensemble.voters
    if not voters:
        return
    spare = (voters - 1) // 2
    if voters < 3:
        sentence = f"{voters} servers: not one of them may fail"
    elif voters % 2 == 0:
        sentence = f"{voters} servers: only {spare} may fail, as with {voters - 1} servers"
    else:
        yield ok("ensemble", "", f"{voters} servers, of which {spare} may fail")
        return
    yield warning("ensemble", "", sentence, "use three or five servers")


def _named(ensemble: Ensemble) -> Iterator[Finding]:
    voters, named = ensemble.voters, len(ensemble.servers)
    if named < voters:
        yield warning(
            "hosts",
            "",
            f"the URL names {named} of {voters} servers: a session cannot move to the others when these are away",
            "name all of them in the URL",
        )


def _rights(ensemble: Ensemble) -> Iterator[Finding]:
    under = ensemble.base or "the root"
    if ensemble.refusal:
        yield problem(
            "rights",
            "",
            f"a lock could not be taken and released under {under}: {ensemble.refusal}",
            f"let this user create, read and delete under {under}",
        )
    elif ensemble.tried and not ensemble.unlisted:
        yield ok("rights", "", f"under {under} this user may do all that holdfast does")
    if ensemble.unlisted and not ensemble.refusal:
        yield notice(
            "rights",
            "",
            f"the nodes under {under} could not be listed, as locks() does: {ensemble.unlisted}",
            f"let this user read {under}",
        )


def _access(ensemble: Ensemble) -> Iterator[Finding]:
    if ensemble.alive and ensemble.open_to_all:
        yield notice(
            "access",
            "",
            "every client that reaches the servers may remove a lock that is held",
            "give a user and a password (zookeeper://user:password@…) and leave out acl=open",
        )


_TOGETHER: Final[tuple[Callable[[Ensemble], Iterator[Finding]], ...]] = (_same, _number, _named, _rights, _access)


# -- each by itself ----------------------------------------------------------------------------------------------------


def _reachable(server: Server, ensemble: Ensemble) -> Iterator[Finding]:
    if server.mode == "read-only":
        yield problem(
            "serving",
            server.name,
            "is read-only: it has lost the majority, and grants nothing until that is back",
            "bring the other servers back, or the network between them",
        )
    elif server.idle:
        yield problem(
            "serving",
            server.name,
            "runs and serves no client: it has no majority",
            "bring the other servers back, or the network between them",
        )
    else:
        remedy = "check address, password and certificate" if server.refused else "start it, or let this host reach it"
        yield problem("reachable", server.name, f"could not be examined: {server.failure}", remedy)


def _version(server: Server, ensemble: Ensemble) -> Iterator[Finding]:
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", server.said.get("Zookeeper version", ""))
    if numbers is None:
        return
    version = tuple(map(int, numbers.groups()))
    if version < _OLDEST:
        yield problem(
            "version",
            server.name,
            f"ZooKeeper {numbers[0]} has no containers, under which locks live",
            "use 3.5.1 or later",
        )
    else:
        yield ok("version", server.name, f"ZooKeeper {numbers[0]}")


def _role(server: Server, ensemble: Ensemble) -> Iterator[Finding]:
    if server.mode:
        yield ok("role", server.name, server.mode)


def _session(server: Server, ensemble: Ensemble) -> Iterator[Finding]:
    ttl, granted = ensemble.options.ttl, server.session
    if granted is None:
        return
    if granted == ttl:
        yield ok("session", server.name, f"a session of {ttl:g} s, which is the ttl, is granted")
        return
    shortest, longest = server.limits()
    allowed = "" if shortest is None or longest is None else f" (it allows {shortest:g} to {longest:g} s)"
    setting = "maxSessionTimeout" if granted < ttl else "minSessionTimeout"
    yield problem(
        "session",
        server.name,
        f"it grants a session of {granted:g} s in place of {ttl:g} s{allowed}: every lock with this ttl is refused",
        f"use ttl={granted:g}, or set its {setting} to {ttl * 1000:.0f}",
    )


def _tick(server: Server, ensemble: Ensemble) -> Iterator[Finding]:
    told, ours = server.tick, ensemble.tick
    if told is None:
        return
    if told > ours:
        yield problem(
            "tick",
            server.name,
            f"its tickTime is {told:g} s and tick is {ours:g} s: a lease may outlive its session, so two hold the lock",
            f"use tick={told:g}",
        )
    elif told < ours:
        yield notice(
            "tick",
            server.name,
            f"its tickTime is {told:g} s and tick is {ours:g} s: leases end {ours - told:g} s sooner than they have to",
            f"use tick={told:g}",
        )
    else:
        yield ok("tick", server.name, f"its tickTime is {told:g} s, as tick is")


def _ttl(server: Server, ensemble: Ensemble) -> Iterator[Finding]:
    ttl, tick = ensemble.options.ttl, max(ensemble.tick, server.tick or 0.0)
    if server.session is not None and ttl < _TICKS_PER_SESSION * tick:
        yield warning(
            "ttl",
            server.name,
            f"a ttl of {ttl:g} s is {ttl / tick:.1f} ticks: an interruption of a few ticks costs the lock",
            f"use a ttl of {_TICKS_PER_SESSION * tick:g} s or more",
        )


def _answers(server: Server, ensemble: Ensemble) -> Iterator[Finding]:
    if server.answer_seconds is None:
        return
    took, limit = f"the leader answers in {server.answer_seconds * 1000:.1f} ms", ensemble.options.request_timeout
    if server.answer_seconds > _SLOW * limit:
        yield warning(
            "answers",
            server.name,
            f"{took}, which is near to request_timeout ({limit:g} s)",
            "raise request_timeout (and ttl to three times that at least), or use servers that are nearer",
        )
    else:
        yield ok("answers", server.name, took)


def _withheld(server: Server, ensemble: Ensemble) -> Iterator[Finding]:
    for word, reason in server.withheld.items():
        unseen = "its tickTime and session limits" if word == "conf" else "its version and role"
        yield notice(
            "withheld",
            server.name,
            f"{unseen} could not be examined ({word}: {reason})",
            f"add {word} to its 4lw.commands.whitelist"
            + (f", or see to it that its tickTime is {ensemble.tick * 1000:.0f}" if word == "conf" else ""),
        )


_EACH: Final[tuple[Callable[[Server, Ensemble], Iterator[Finding]], ...]] = (
    _version,
    _role,
    _session,
    _tick,
    _ttl,
    _answers,
    _withheld,
)
