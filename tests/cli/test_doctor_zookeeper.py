"""The doctor on a ZooKeeper ensemble: findings, output, exit code, and no leftovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.security import CREATOR_ALL_ACL, make_acl

import holdfast
from tests.cli.doctor import Doctor
from tests.servers.ensemble import Ensemble
from tests.servers.zookeeper import BASE, ZooKeeperServer
from tests.support.certificates import certificates
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs_zookeeper

SECRET = "s3cr3t-p4ss"
Start = Callable[..., ZooKeeperServer]


#: Freshly started servers answer slowly, more so on a loaded machine; these tests do not measure that.
LONG_TIMEOUT = "&request_timeout=8"


def url_of(*places: str, base: str = BASE, user: str = f"app:{SECRET}@", more: str = "") -> str:
    return f"zookeeper://{user}{','.join(places)}{base}?tick=0.1{LONG_TIMEOUT}{more}"


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    """Never emptied, because a user cannot remove nodes that belong to another. Each test has its own base."""
    with ZooKeeperServer() as started:
        yield started


def test_healthy_ensemble(ensemble: Ensemble, doctor: Doctor) -> None:
    found = doctor(url_of(*(member.address for member in ensemble.members)))
    assert (found.code, found.worse_than_ok(), found.err) == (0, {}, "")
    assert {finding["check"] for finding in found.findings} >= {"ensemble", "rights", "version", "role", "tick"}
    roles = [finding["sentence"] for finding in found.of("role")]
    assert sorted(roles) == ["follower", "follower", "leader"]
    assert SECRET not in found.out
    assert ensemble.client().get_children("/") == ["zookeeper"], "the doctor left nodes behind"
    one = doctor(url_of(ensemble.members[0].address))
    assert (one.code, one.worse_than_ok()) == (3, {"hosts": "warning"})


def test_ensemble_without_a_majority(ensemble: Ensemble, doctor: Doctor) -> None:
    alone, *others = ensemble.members
    ensemble.kill(*others)
    ensemble.wait_until_silent(alone)
    found = doctor(url_of(*(member.address for member in ensemble.members)))
    assert found.code == 4
    assert found.level("serving", alone.address) == "problem"
    assert {finding["node"] for finding in found.of("reachable")} == {member.address for member in others}


def test_read_only_server_is_reported(start_ensemble: Callable[..., Ensemble], doctor: Doctor) -> None:
    """A server without a majority in read-only mode grants nothing, and sessions of the engine avoid it."""
    ensemble = start_ensemble(jvm=("-Dreadonlymode.enabled=true",))
    alone, *others = ensemble.members
    ensemble.kill(*others)
    eventually(lambda: alone.mode() == "read-only", 20.0)
    found = doctor(url_of(*(member.address for member in ensemble.members)))
    assert found.code == 4
    (finding,) = found.of("serving")
    assert (finding["node"], finding["level"]) == (alone.address, "problem")
    assert "read-only" in finding["sentence"]
    with (
        holdfast.connect(ensemble.url, unavailable_after=0.5) as locks,
        pytest.raises(holdfast.EngineUnavailable),
    ):
        locks.lock("a").acquire()


def test_single_server_is_reported(server: ZooKeeperServer, doctor: Doctor) -> None:
    found = doctor(url_of(server.address, base="/one"))
    assert (found.code, found.worse_than_ok()) == (3, {"ensemble": "warning"})
    anonymous = doctor(url_of(server.address, base="", user=""))
    assert anonymous.worse_than_ok() == {"ensemble": "warning", "access": "notice"}
    assert "one" not in server.client().get_children("/")


def test_existing_nodes_stay(server: ZooKeeperServer, doctor: Doctor) -> None:
    server.client().create("/there")
    assert doctor(url_of(server.address, base="/there/deep/down")).level("rights") == "ok"
    assert server.client().get_children("/there") == []


@pytest.mark.parametrize("ttl, setting", [(120, "maxSessionTimeout"), (0.1, "minSessionTimeout")])
def test_ttl_outside_the_session_limits_is_reported(
    server: ZooKeeperServer, doctor: Doctor, ttl: float, setting: str
) -> None:
    found = doctor(url_of(server.address, base="/limits", more=f"&ttl={ttl}"))
    assert found.code == 4
    (finding,) = found.of("session")
    assert finding["level"] == "problem"
    assert setting in finding["remedy"]
    assert found.level("rights") == "ok", "the other checks use the granted session"


def test_wrong_tick_setting_is_reported(server: ZooKeeperServer, doctor: Doctor) -> None:
    below = doctor(url_of(server.address, base="/tick").replace("tick=0.1", "tick=0.05"))
    assert (below.code, below.level("tick")) == (4, "problem")
    assert below.of("tick")[0]["remedy"] == "use tick=0.1"
    assert doctor(url_of(server.address, base="/tick").replace("tick=0.1", "tick=2")).level("tick") == "notice"
    assert doctor(url_of(server.address, base="/tick", more="&ttl=0.4")).level("ttl") == "warning"


def test_missing_rights_are_reported(server: ZooKeeperServer, doctor: Doctor) -> None:
    admin = server.client(auth_data=[("digest", "admin:pw")])
    admin.create("/closed", acl=CREATOR_ALL_ACL)
    admin.create("/blind", acl=[*CREATOR_ALL_ACL, make_acl("world", "anyone", create=True, delete=True)])
    closed = doctor(url_of(server.address, base="/closed"))
    assert closed.code == 4
    assert "NoAuth" in closed.of("rights")[0]["sentence"]
    blind = doctor(url_of(server.address, base="/blind"))
    assert (blind.level("rights"), blind.code) == ("notice", 3)
    assert admin.get_children("/blind") == []


def test_servers_of_different_ensembles_are_reported(
    server: ZooKeeperServer, start_zookeeper: Start, doctor: Doctor
) -> None:
    stranger = start_zookeeper()
    found = doctor(url_of(server.address, stranger.address, base="/both"))
    (finding,) = found.of("agreement")
    assert (found.code, finding["level"]) == (4, "problem")
    assert stranger.address in finding["sentence"]
    for each in (server, stranger):
        assert "both" not in each.client().get_children("/")


class DefaultSettings(ZooKeeperServer):
    """Has ZooKeeper's default settings: it answers only the command ``srvr``."""

    def __init__(self) -> None:
        super().__init__("4lw.commands.whitelist=srvr")

    def _answers(self) -> bool:
        try:
            return "Zookeeper version" in self.ask("srvr")
        except OSError:
            return False


def test_server_that_answers_only_srvr(doctor: Doctor) -> None:
    with DefaultSettings() as server:
        found = doctor(url_of(server.address))
    assert found.worse_than_ok() == {"ensemble": "warning", "withheld": "notice"}
    (finding,) = found.of("withheld")
    assert "tickTime" in finding["sentence"]
    assert "its tickTime is 100" in finding["remedy"]
    assert (found.of("tick"), found.level("session"), found.level("version")) == ([], "ok", "ok")


def test_tls(start_zookeeper: Start, tmp_path: Path, doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    server = start_zookeeper(tls=certificates(tmp_path / "theirs"))
    found = doctor(f"{server.url}{LONG_TIMEOUT}&username=app&password={SECRET}")
    assert found.worse_than_ok() == {"ensemble": "warning"}
    assert found.level("version") == found.level("tick") == "ok", "four-letter commands use TLS, too"
    place = f"{server.host}:{server.tls_port}"
    refused = doctor(url_of(place, more=f"&use_ssl=true&ca={certificates(tmp_path / 'ours')}/ca.crt"))
    assert refused.code == 77
    assert "certificate" in refused.err
    assert SECRET not in refused.err


def test_unreachable_ensemble_is_reported(doctor: Doctor) -> None:
    found = doctor(url_of("127.0.0.1:1"))
    assert (found.code, found.out) == (69, "")
    assert "no server could be examined: 127.0.0.1:1: " in found.err
