"""Two candidates: one leads, the other one stands by and follows when the leader resigns or is lost.

``python examples/leader_with_standby.py``
"""

from __future__ import annotations

import threading

import holdfast


def candidate(name: str, leads: threading.Event, stop: threading.Event) -> None:
    """Campaign, lead until ``stop``, resign. A process of its own in real life; it connects by itself."""
    with holdfast.connect() as locks:
        election = locks.election("scheduler", value=name, ttl=5)
        with election.campaign(timeout=60) as lease:
            print(f"{name}: leads")
            leads.set()
            while lease.held and not stop.wait(0.05):
                pass  # the leader's work: short steps, and a fence with lease.token for what it writes
        print(f"{name}: resigned")


def main() -> None:
    events = {name: (threading.Event(), threading.Event()) for name in ("one", "two")}
    with holdfast.connect() as locks:
        election = locks.election("scheduler")
        threads = []
        for name, (leads, stop) in events.items():
            thread = threading.Thread(target=candidate, args=(name, leads, stop))
            thread.start()
            threads.append(thread)
            if name == "one":
                leads.wait(60)
        leader = election.leader()
        print(f"observer: {leader.value if leader else 'no leader'}")
        events["one"][1].set()  # a deployment: the leader resigns, and the standby follows
        events["two"][0].wait(60)
        leader = election.leader()
        print(f"observer: then {leader.value if leader else 'no leader'}")
        events["two"][1].set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
