"""The certifier's actions for a fault, and how it finds out whether a fault had an effect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import Injection
from odradek.certify.runs import acts
from odradek.certify.runs.acts import OtherInstances, perform
from odradek.certify.runs.scene import Scene, Strike
from odradek.certify.services.service import Services

COMMIT = Moment("EndTxn", (("transactional_id", "t"),), 2, "commit")


class Process:
    """A fake instance of a job. ``peers``: the client addresses of its connections, such as ``h:1``."""

    def __init__(self, number: int, *peers: str, is_alive: bool = True) -> None:
        self.number, self.peers, self.is_alive = number, peers, is_alive

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def end(self) -> None: ...


class Instances:
    """A fake job. ``next_peers``: client addresses of the next started instance; ``exits``: it ends at once."""

    def __init__(self, *alive: Process, next_peers: tuple[str, ...] = (), exits: bool = False) -> None:
        self.alive, self.next_peers = list(alive), next_peers
        self.exits: list[Any] = []
        self.killed_ones: list[int] = []
        self.kills, self._ends = 0, exits

    def start(self, number: int) -> Process:
        started = Process(number, *self.next_peers)
        if self._ends:
            self.exits += [SimpleNamespace(instance=number, code=1)] * 2
        else:
            self.alive.append(started)
        return started

    def killed(self, instance: Process) -> None:
        self.killed_ones.append(instance.number)

    def owner(self, peer: str) -> Process | None:
        return next((each for each in self.alive if peer in each.peers), None)


class Rule:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def scene(job: Instances, *entries: dict[str, Any], **handle: Any) -> tuple[Scene, list[str]]:
    """A scene (the objects that the certifier's actions use), and the list of the notes that these actions write.

    The broker's trace is empty when the certifier reads it for the first time; later it has the entries. ``handle``
    replaces attributes of the fake broker.
    """

    def found(since: int | None = None, api: str | None = None, **_: Any) -> list[dict[str, Any]]:
        is_first = since is None and api is None
        return [] if is_first else [each for each in entries if api in (None, each["api"])]

    broker = SimpleNamespace(
        trace=SimpleNamespace(entries=found), transactions=SimpleNamespace(list=list), nodes={}
    )
    vars(broker).update(handle)
    notes: list[str] = []
    clocks = SimpleNamespace(
        time_out_transactions=lambda: None,
        time_out_sessions=lambda: None,
        expire_ids=lambda: None,
        expire_locks=lambda: None,
    )
    cluster = SimpleNamespace(handle=broker, groups=lambda: [{"members": 0}])
    made = Scene(
        cast(Any, cluster),
        Services((), (), ()),
        cast(Any, job),
        cast(Any, clocks),
        (),
        lambda: True,
        cast(Any, notes.append),
    )
    made.ended.set()
    return made, notes


def entry(api: str, peer: str, outcome: str = "answered") -> dict[str, Any]:
    return {
        "api": api,
        "peer": peer,
        "outcome": outcome,
        "number": 1,
        "from_node": None,
        "line": api,
        "request": {},
    }


def done(fault: str, scene: Scene, moment: Moment = COMMIT) -> str:
    return perform(scene, Strike(Injection(moment, BY_NAME[fault]), cast(Any, Rule())))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAKE_OVER_S", "WAKE_S", "READ_S"):
        monkeypatch.setattr(acts, name, 0.0)


def test_the_instance_that_sent_the_request_is_killed() -> None:
    job = Instances(Process(1, "h:1"), Process(2, "h:2"))
    staged, notes = scene(job, entry("EndTxn", "h:2", "unanswered"))
    assert done("kill-before", staged) == ""
    assert (job.killed_ones, notes) == ([2], ["instance 2 is killed"])


@pytest.mark.parametrize("fault", ["kill-before", "kill-after", "freeze", "remove-instance"])
def test_an_ended_instance_is_not_affected_by_a_fault(fault: str) -> None:
    """A fault for an instance that has ended already kills no other instance."""
    for job in (Instances(), Instances(Process(1, "h:1"), Process(2, "h:2"))):
        hit = BY_NAME[fault].action.startswith("lose-answer")
        outcome = "held" if fault in ("freeze", "remove-instance") else "answer_lost" if hit else "unanswered"
        staged, _ = scene(job, entry("EndTxn", "h:9", outcome))
        assert done(fault, staged) == "the instance that sent the request had ended already"
        assert job.killed_ones == []


def test_all_instances_had_ended() -> None:
    assert done("kill-all", scene(Instances())[0]) == "all instances had ended already"


def test_an_added_instance_that_joins() -> None:
    job = Instances(Process(1, "h:1"), next_peers=("h:2",))
    staged, notes = scene(job, entry("Produce", "h:1"), entry("JoinGroup", "h:2", "in_progress"))
    assert done("add-instance", staged) == ""
    assert notes == ["instance 2 is started", "instance 2 joined"]


def test_an_added_instance_that_ends_without_a_request() -> None:
    job = Instances(Process(1, "h:1"), exits=True)
    staged, notes = scene(job, entry("JoinGroup", "h:1"))
    why = "the instance that was started sent no request: it ended with exit code 1"
    assert done("add-instance", staged) == why
    assert notes[-1] == "instance 2 sent no request: it ended with exit code 1"


def test_a_second_copy_that_does_nothing() -> None:
    job = Instances(Process(1, "h:1"), next_peers=("h:2",))
    staged, _ = scene(job, entry("Produce", "h:1"), entry("Metadata", "h:2"))
    assert done("second-copy", staged) == "the instance that was started sent no request"


@pytest.mark.parametrize(
    ("seen", "did"),
    [
        pytest.param([("InitProducerId", "h:2"), ("EndTxn", "h:2")], "initialised a producer and committed", id="new"),
        pytest.param([("JoinGroup", "h:3")], "joined", id="another one gets more"),
        pytest.param([("Produce", "h:3"), ("Produce", "h:1")], "", id="another one goes on"),
        pytest.param([], "", id="none"),
    ],
)  # fmt: skip
def test_whether_another_instance_took_over(seen: list[tuple[str, str]], did: str) -> None:
    job = Instances(Process(1, "h:1"), Process(2, "h:3"), next_peers=("h:2",))
    held = entry("EndTxn", "h:1", "held")
    staged, notes = scene(job, held, *(entry(api, peer) for api, peer in seen))
    why = done("freeze", staged)
    said = next(each for each in notes if each.startswith("while instance 1 was frozen"))
    if did:
        assert (why, did in said) == ("", True)
    else:
        assert why == "no other instance took over while instance 1 was frozen"
        assert said == "while instance 1 was frozen, no other instance took over"


def test_one_that_took_over_may_have_ended_before_the_frozen_one_wakes() -> None:
    job = Instances(Process(1, "h:1"), next_peers=("h:2",))
    staged, notes = scene(job, entry("EndTxn", "h:1", "held"), entry("EndTxn", "h:2"))

    def is_done() -> bool:
        job.alive.pop()
        return True

    staged.is_done = is_done
    assert done("freeze", staged) == ""
    assert "while instance 1 was frozen, the new instance 1 committed" in notes


def test_a_connection_of_an_ended_process_belongs_to_the_newly_started_one() -> None:
    """If no running instance has a new connection, the certifier assumes it to be the newly started instance's.

    The process that had the connection has ended before the certifier looked. If an earlier instance has ended too, the
    connection may be of that instance, and is attributed to none.
    """
    job = Instances(Process(1, "h:1"))
    staged, notes = scene(job, entry("InitProducerId", "h:2"))
    assert done("add-instance", staged) == ""
    assert notes[-1] == "instance 2 initialised a producer"
    job = Instances(Process(1, "h:1", is_alive=False))
    assert done("add-instance", scene(job, entry("InitProducerId", "h:2"))[0])


def test_an_advance_without_an_effect() -> None:
    assert done("time-out-transaction", scene(Instances())[0]) == "no transaction was open"
    assert done("time-out-session", scene(Instances())[0]) == "no group had a member"
    assert done("expire-ids", scene(Instances())[0]) == "no transactional id expired"


COMMITTED = Moment("ShareAcknowledge", (("group", "g"),), 2, "")
FETCHED = Moment("ShareFetch", (("group", "g"),), 2, "records")


def test_locks_that_run_out_without_an_effect() -> None:
    job = Instances(Process(1, "h:1"))
    accepted = entry("ShareAcknowledge", "h:1", "held")
    assert done("expire-locks", scene(job, accepted)[0], COMMITTED) == "no acknowledgement was refused"
    refused = {**accepted, "line": "ShareAcknowledge -> in-0:INVALID_RECORD_STATE"}
    assert done("expire-locks", scene(job, refused)[0], COMMITTED) == ""
    empty = entry("ShareFetch", "h:1", "held")
    assert done("late-records", scene(job, empty)[0], FETCHED) == "the response had no records"
    delivered = {**empty, "line": "ShareFetch -> ok in-0[acquired 0-1 delivery 1]"}
    staged, notes = scene(job, delivered)
    assert (done("late-records", staged, FETCHED), notes) == (
        "",
        ["instance 1 gets its records after their locks have run out"],
    )
    assert done("late-records", scene(Instances(), delivered)[0], FETCHED) == (
        "the instance that sent the request had ended already"
    )


def test_another_member_takes_over_by_records() -> None:
    """A member of a share group needs no rebalance to get the records of a frozen one."""
    for line, did in (("ShareFetch -> ok in-0[acquired 0-1 delivery 1]", "read"), ("ShareFetch -> ok", "")):
        job = Instances(Process(1, "h:1"), Process(2, "h:3"), next_peers=("h:2",))
        held, taken = entry("EndTxn", "h:1", "held"), {**entry("ShareFetch", "h:3"), "line": line}
        staged, notes = scene(job, held, taken)
        done("freeze", staged)
        assert any(f"instance 2 {did}" in each for each in notes) is bool(did)


def test_an_open_transaction_of_another_id_does_not_count() -> None:
    def listed(transactional_id: str) -> Any:
        one = SimpleNamespace(transactional_id=transactional_id, state="Ongoing")
        return SimpleNamespace(list=lambda: [one])

    assert done("time-out-transaction", scene(Instances(), transactions=listed("t"))[0]) == ""
    other = scene(Instances(), transactions=listed("u"))[0]
    assert done("time-out-transaction", other) == "no transaction was open"


def test_nothing_can_be_moved() -> None:
    assert done("move", scene(Instances())[0]) == "nothing was moved"


def test_a_connection_is_attributed_once() -> None:
    job = Instances(Process(1, "h:1"), next_peers=("h:2",))
    staged, _ = scene(job, entry("JoinGroup", "h:2"))
    others = OtherInstances(staged)
    job.start(2)
    assert others.did() == "instance 2 joined"
    job.alive.pop()
    assert others.did() == "instance 2 joined"


def test_a_kill_between_two_requests_comes_behind_the_response() -> None:
    """A kill between two requests waits for the response to the first request, which a rule has held.

    It kills the instance that sent this request.
    """
    job = Instances(Process(1, "h:1"), Process(2, "h:2"))
    outcomes = iter(["held", "held", "in_progress", "answered"])
    staged, notes = scene(job)

    def entries(**_: Any) -> list[dict[str, Any]]:
        return [entry("EndTxn", "h:2", next(outcomes))]

    staged.observation._broker.trace.entries = entries
    assert done("kill-between", staged) == ""
    assert (job.killed_ones, notes, list(outcomes)) == ([2], ["instance 2 is killed"], [])
