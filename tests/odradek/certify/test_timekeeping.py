"""The certifier advances the broker's clock where a real cluster would wait for the timeouts of a dead instance."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.certify.jobs.job import Job
from odradek.certify.runs.cluster import Cluster
from odradek.certify.runs.timekeeping import Timekeeping

LOOKS = 3
LOOK_S = 0.4


class Quiet:
    """A fake broker with these exchanges in its trace and one open transaction.

    ``moved`` lists the advances of the broker's clock. ``busy``: each read of the trace finds one more Produce.
    """

    def __init__(self, *exchanges: dict[str, Any], state: str = "Ongoing", busy: bool = False) -> None:
        self._exchanges, self._busy = list(exchanges), busy
        self.moved: list[tuple[str, int]] = []
        self.trace = self
        self.clock = SimpleNamespace(advance=lambda by_ms, only: self.moved.append((only[0], by_ms)))
        open_one = SimpleNamespace(transactional_id="a", producer_epoch=0, state=state, timeout_ms=40_000)
        self.transactions = SimpleNamespace(list=lambda: [open_one])

    def asked(self, more: dict[str, Any]) -> None:
        self._exchanges.append(more)

    def answered(self) -> None:
        """Mark every waiting request as answered."""
        self._exchanges = [each | {"outcome": "answered"} for each in self._exchanges]

    def entries(self, api: str | None = None, limit: int = 100, **_: Any) -> list[dict[str, Any]]:
        if self._busy:
            self._exchanges.append(exchange("Produce"))
        numbered = [each | {"number": number} for number, each in enumerate(self._exchanges, 1)]
        return [each for each in numbered if api in (None, each["api"])][-limit:]


def exchange(api: str, line: str = "", outcome: str = "answered") -> dict[str, Any]:
    return {"api": api, "line": line, "outcome": outcome, "request": {}}


def timekeeping(broker: Quiet, *, kills: int = 0, given_up: int = 0, moves_time: bool = True) -> Timekeeping:
    job = cast(Job, SimpleNamespace(exits=[], kills=kills, given_up=given_up))
    cluster = cast(Cluster, SimpleNamespace(handle=broker, moves_time=moves_time))
    passes = count()
    return Timekeeping(cluster, job, lambda: 0, lambda _: None, lambda: LOOK_S * next(passes))


WAITS = exchange("OffsetFetch", "OffsetFetch group=g in-0 -> in-0:UNSTABLE_OFFSET_COMMIT")
JOINS = exchange("JoinGroup", outcome="in_progress")


@pytest.mark.parametrize(
    ("broker", "kills", "clocks"),
    [
        pytest.param(Quiet(exchange("Produce"), WAITS), 1, ["transactions"], id="offsets of the dead"),
        pytest.param(Quiet(WAITS, busy=True), 1, [], id="another one still works"),
        pytest.param(Quiet(exchange("Produce"), WAITS), 0, [], id="all are alive"),
        pytest.param(Quiet(WAITS, exchange("OffsetFetch", "-> ok")), 1, [], id="offsets are there"),
        pytest.param(Quiet(JOINS), 1, ["groups"], id="member of the dead"),
        pytest.param(Quiet(JOINS), 0, [], id="members are alive"),
    ],
)
def test_a_clock_is_moved_once_for_each_instance_that_has_died(
    broker: Quiet, kills: int, clocks: list[str]
) -> None:
    kept = timekeeping(broker, kills=kills)
    for _ in range(LOOKS):
        kept.keep()
    assert [only for only, _ in broker.moved] == clocks


def test_a_transaction_that_was_left_open_is_timed_out_once() -> None:
    broker = Quiet(exchange("Produce"))
    clocks = timekeeping(broker)
    assert True in [clocks.ends_open_transactions() for _ in range(LOOKS)]
    assert broker.moved == [("transactions", 51_000)]


def test_a_transaction_that_continues_is_not_timed_out() -> None:
    broker = Quiet(busy=True)
    clocks = timekeeping(broker)
    assert True not in [clocks.ends_open_transactions() for _ in range(LOOKS)]
    assert clocks.ends_open_transactions(are_left=True)


def test_without_an_open_transaction_nothing_is_timed_out() -> None:
    broker = Quiet(exchange("Produce"), state="CompleteCommit")
    clocks = timekeeping(broker)
    assert True not in [clocks.ends_open_transactions() for _ in range(LOOKS)]
    assert broker.moved == []


def test_no_other_clock_than_the_broker_s_is_advanced() -> None:
    broker = Quiet(exchange("JoinGroup", outcome="in_progress"))
    elsewhere = timekeeping(broker, kills=1, moves_time=False)
    elsewhere.keep()
    assert not elsewhere.ends_rest()
    assert not elsewhere.ends_open_transactions(are_left=True)
    assert broker.moved == []


def test_a_group_takes_a_dead_members_partitions_from_it_when_the_job_has_come_to_rest() -> None:
    broker = Quiet(exchange("Produce"), state="Empty")
    clocks = timekeeping(broker, kills=1)
    assert [clocks.ends_rest() for _ in range(LOOKS)] == [True, False, False]
    assert [only for only, _ in broker.moved] == ["groups"]


def test_members_do_not_wait_forever_for_the_assignment_of_a_dead_leader() -> None:
    """Members wait for the assignment of a dead leader only until the leader's session times out.

    The leader died while its JoinGroup waited, before it became the leader.
    """
    broker = Quiet(exchange("SyncGroup"), exchange("SyncGroup", outcome="in_progress"), state="Empty")
    clocks = timekeeping(broker, kills=1)
    clocks.ends_rest()
    del broker.moved[:]
    broker.answered()
    assert not clocks.ends_rest()
    broker.asked(exchange("SyncGroup", outcome="in_progress"))
    assert [clocks.ends_rest() for _ in range(LOOKS)] == [True, False, False]
    assert [only for only, _ in broker.moved] == ["groups"]


def test_what_is_open_when_the_job_has_come_to_rest_was_left() -> None:
    broker = Quiet(exchange("Produce"))
    assert timekeeping(broker).ends_rest()
    assert broker.moved == [("transactions", 51_000)]


def test_the_others_need_not_wait_for_the_partitions_of_one_that_will_not_come_back() -> None:
    broker = Quiet(exchange("Produce"), state="Empty")
    clocks = timekeeping(broker, kills=1, given_up=1)
    for _ in range(LOOKS):
        clocks.keep()
    assert [only for only, _ in broker.moved] == ["groups"]
    assert clocks.was_moved


def test_a_joining_member_does_not_wait_for_a_client_that_closed_without_leaving() -> None:
    broker = Quiet(JOINS, state="Empty")
    clocks = timekeeping(broker)
    assert [clocks.ends_rest() for _ in range(LOOKS)] == [True, False, False]
    assert [only for only, _ in broker.moved] == ["groups"]


def delivers(lock_ms: int) -> dict[str, Any]:
    found = exchange("ShareFetch", "ShareFetch group=g -> ok in-0[acquired 0-2 delivery 1]")
    return found | {"answer": {"acquisition_lock_timeout_ms": lock_ms}}


IDLE_FETCH = exchange("ShareFetch", "ShareFetch group=g -> ok") | {"answer": None}


def test_a_share_group_that_delivers_nothing_waits_for_the_session_of_a_dead_member() -> None:
    for kills, moved in ((1, [("groups", 46_000)]), (0, [])):
        broker = Quiet(delivers(30_000), IDLE_FETCH, state="CompleteCommit")
        kept = timekeeping(broker, kills=kills)
        for _ in range(2 * LOOKS):
            kept.keep()
        assert broker.moved == moved
    never = Quiet(IDLE_FETCH, state="CompleteCommit")
    kept = timekeeping(never, kills=1)
    for _ in range(2 * LOOKS):
        kept.keep()
    assert never.moved == []


def test_locks_are_timed_out_once_for_each_delivery() -> None:
    """At rest, locks may be all that the job waits for: a response with records, or an acknowledgement, was lost."""
    broker = Quiet(delivers(2_000), IDLE_FETCH, state="CompleteCommit")
    clocks = timekeeping(broker)
    assert (clocks.ends_rest(), clocks.ends_rest()) == (True, False)
    broker.asked(delivers(2_000))
    assert (clocks.ends_rest(), clocks.ends_rest()) == (True, False)
    assert broker.moved == [("groups", 3_000)] * 2
