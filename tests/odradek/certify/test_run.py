"""The evidence and progress of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.certify.jobs.job import wait_until
from odradek.certify.judging.findings import Outputs
from odradek.certify.plans.plan import Plan
from odradek.certify.runs.cluster import Cluster
from odradek.certify.runs.commits import Commits
from odradek.certify.runs.idleness import Idleness
from odradek.certify.runs.progress import Progress, is_lag_zero
from odradek.certify.runs.run import Run, Stage, _together
from odradek.certify.runs.seeding import SEEDER
from odradek.certify.runs.until import Until
from odradek.certify.services.service import Services
from odradek.errors import ControlRefused, NotFound
from odradek.topics import Record
from tests.odradek.certify.traces import end, init
from tests.support.deadlines import HANG_S


def timeline(transactional_id: str) -> Any:
    if transactional_id == "refused":
        raise NotFound(404, "the transactional id is unknown")
    return SimpleNamespace(text=f"timeline of {transactional_id}")


def test_the_evidence_is_of_the_jobs_ids_that_a_coordinator_knows() -> None:
    entries = [init("a"), init("refused"), init(SEEDER), end("a")]
    stage = object.__new__(Stage)
    trace = SimpleNamespace(entries=lambda **_: entries)
    handle = SimpleNamespace(trace=trace, timeline=timeline)
    stage.cluster = cast(Cluster, SimpleNamespace(handle=handle))
    stage.services = Services((), (), ())
    run = stage.add_evidence(Run(Plan(), Outputs([], []), [], 0.0, [], [], ""))
    assert run.timelines == {"a": "timeline of a"}
    assert {each.transactional_id for each in run.trace} == {"a", "refused"}


def progress(cluster: object, **more: Any) -> Progress:
    return Progress(
        cast(Cluster, cluster),
        more.get("services", Services((), (), ())),
        cast(Any, SimpleNamespace()),
        ["out"],
        more.get("last", {}),
        more.get("collect", lambda: Outputs([], [])),
        more.get("commits", cast(Any, SimpleNamespace(last_s=0.0))),
        more.get("acknowledged", cast(Any, SimpleNamespace(are_all=False))),
        more.get("now_s", lambda: 0.0),
    )


def test_a_node_that_is_killed_while_outputs_settle_is_waited_for() -> None:
    """A run waits for a node that is killed while the outputs settle.

    A fault may come after the last record: at a heartbeat, or when the job closes its producer.
    """

    def killed() -> Outputs:
        raise ControlRefused(409, "no running node leads out-0")

    cluster = SimpleNamespace(handle=None)
    assert progress(cluster, collect=killed).asked(lambda _: True) is False
    assert progress(cluster).asked(lambda _: True) is True


@pytest.mark.parametrize(
    ("committed", "is_zero"),
    [
        pytest.param([{}], False, id="nothing"),
        pytest.param([{0: 5, 1: 3}], True, id="all"),
        pytest.param([{0: 5}], False, id="one of two partitions"),
        pytest.param([{0: 5, 1: 2}], False, id="not to the end"),
        pytest.param([{0: 5, 1: 3}, {0: 1, 1: 1}], False, id="another group lags"),
    ],
)
def test_lag(committed: list[dict[int, int]], is_zero: bool) -> None:
    groups = [
        {"offsets": [{"topic": "in", "partition": each, "committed": at} for each, at in group.items()]}
        for group in committed
    ]
    other = {"offsets": [{"topic": "other", "partition": 0, "committed": 0}]}
    assert is_lag_zero([*groups, other], {("in", 0): 4, ("in", 1): 2}) is is_zero


@pytest.mark.parametrize(
    ("lags", "is_zero"), [((0, 0), True), ((0, 1), False), ((0, None), False), ((0,), False)]
)
def test_a_share_group_has_a_lag_only(lags: tuple[int | None, ...], is_zero: bool) -> None:
    shares = [{"topic": "in", "partition": at, "lag": lag} for at, lag in enumerate(lags)]
    assert is_lag_zero([{"offsets": [], "shares": shares}], {("in", 0): 4, ("in", 1): 2}) is is_zero


def test_lag_is_asked_for_while_positions_are_committed_and_now_and_then() -> None:
    now, asked, commits = [10.0], list[float](), SimpleNamespace(last_s=0.0)
    cluster = SimpleNamespace(handle=None, groups=lambda: asked.append(now[0]) or [])
    found = progress(cluster, commits=commits, now_s=lambda: now[0])
    looks = [(10.0, 0.0), (10.02, 0.0), *((at_s, 10.03) for at_s in (10.04, 10.1, 10.24, 10.28, 10.5))]
    for at_s, committed_s in looks:
        now[0], commits.last_s = at_s, committed_s
        found.is_lag_zero()
    assert asked == [10.0, 10.04, 10.1, 10.24, 10.5]


@pytest.mark.parametrize(
    ("names", "has_writes", "reach", "has_begun"),
    [
        pytest.param([], False, 0, True, id="Kafka only"),
        pytest.param(["postgres"], False, 0, False, id="topics of its own"),
        pytest.param(["postgres"], True, 0, True, id="rows"),
        pytest.param(["postgres"], False, 2, True, id="outputs"),
    ],
)
def test_a_job_beside_a_service_has_begun_when_it_has_changed_the_service_or_an_output(
    names: list[str], has_writes: bool, reach: int, has_begun: bool
) -> None:
    """A worker of Kafka Connect writes its connector to a topic, and its task may start seconds later."""
    trace = SimpleNamespace(entries=lambda api, **_: [{"api": api}] if api == "Produce" else [])
    cluster = SimpleNamespace(handle=SimpleNamespace(trace=trace), reach=lambda topics: reach)
    services = SimpleNamespace(names=names, has_writes=has_writes)
    assert progress(cluster, services=cast(Any, services)).has_begun() is has_begun


class Followed:
    """A fake trace. A follower of OffsetCommit gets one exchange, of another API none. Then it waits for `end`.

    With ``can=False`` the trace refuses every follower.
    """

    def __init__(self, *, can: bool) -> None:
        self.can, self.told, self.end = can, threading.Event(), threading.Event()

    @contextmanager
    def follow(self, api: str, **_: Any) -> Iterator[Iterator[int]]:
        def exchanges() -> Iterator[int]:
            if api == "OffsetCommit":
                yield 1
                self.told.set()
            self.end.wait(HANG_S)

        if not self.can:
            raise ControlRefused(429, "too many follow the trace")
        yield exchanges()


def test_commits_are_followed_in_the_trace() -> None:
    trace = Followed(can=True)
    commits = Commits(cast(Any, trace), now_s=lambda: 7.0)
    assert commits.last_s == 7.0  # the time at which `Commits` was created
    commits.follow()
    assert trace.told.wait(HANG_S)
    assert commits.last_s == 7.0
    trace.end.set()


def test_a_broker_whose_trace_cannot_be_followed_is_polled() -> None:
    now = count()
    commits = Commits(cast(Any, Followed(can=False)), now_s=lambda: float(next(now)))
    commits.follow()
    assert wait_until(lambda: not commits._followed, HANG_S)
    assert commits.last_s < commits.last_s


def test_outputs_are_counted_again_when_there_are_more() -> None:
    reads: list[int] = []
    reach = iter([0, 4, 4, 6])
    cluster = SimpleNamespace(
        handle=None,
        reach=lambda topics: next(reach),
        records=lambda topics: reads.append(1) or [0] * len(reads),
        open_transactions=lambda topics: [],
    )
    found = progress(cluster)
    assert [found.state(Until("records", 3), None)[0] for _ in range(4)] == [False, False, False, True]
    assert len(reads) == 3


def entry(number: int, api: str, line: str = "") -> dict[str, Any]:
    return {"number": number, "api": api, "line": line}


def test_a_job_that_only_reads_is_idle_when_it_reads_nothing_more() -> None:
    now = [0.0]
    found: list[dict[str, Any]] = []
    trace = SimpleNamespace(entries=lambda **_: found)
    seen = progress(SimpleNamespace(handle=SimpleNamespace(trace=trace)), now_s=lambda: now[0])
    assert seen.idle_s() == 0.0
    for at_s, more, idle_s in (
        (1.0, entry(1, "Fetch", "Fetch in-0@0 -> ok in-0[3 records]"), 0.0),
        (3.0, entry(2, "Fetch", "Fetch in-0@3 -> ok"), 2.0),
        (4.0, entry(3, "OffsetCommit"), 0.0),
        (7.0, entry(4, "Fetch", "Fetch in-0@3 -> ok in-0[1 record]"), 3.0),
    ):
        now[0] = at_s
        found.append(more)
        assert seen.idle_s() == idle_s


def test_what_a_second_start_writes_again_does_not_count() -> None:
    def record(value: str) -> Record:
        return Record("out", 0, 0, 0, None, value, (), -1, -1, False, None)

    first, second = ([record(each) for each in values] for values in ("ab", "abcab"))
    both = _together(Outputs(first, first), Outputs(second, second))
    assert [each.value for each in both.committed] == ["a", "b", "c"]


def test_a_counter_without_a_new_value_for_a_while_is_idle() -> None:
    now = iter([0.0, 1.0, 1.0, 3.0, 4.0])
    idleness = Idleness(lambda: next(now))
    assert idleness.lasts_s(7) == 0.0
    assert idleness.lasts_s(7) == 2.0
    assert idleness.lasts_s(0) == 3.0
