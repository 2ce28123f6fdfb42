"""What is kept of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from odradek.certify.cluster import Cluster
from odradek.certify.idleness import Idleness
from odradek.certify.patience import Patience
from odradek.certify.plan import Plan
from odradek.certify.run import Run, Stage
from odradek.certify.seeding import SEEDER
from odradek.certify.verdict import Outputs
from odradek.certify.workload import Until
from odradek.errors import ControlRefused, NotFound
from tests.odradek.certify.traces import end, init


def timeline(transactional_id: str) -> Any:
    if transactional_id == "refused":
        raise NotFound(404, "no transaction log knows the id")
    return SimpleNamespace(text=f"timeline of {transactional_id}")


def test_the_evidence_is_of_the_jobs_ids_that_a_coordinator_knows() -> None:
    entries = [init("a"), init("refused"), init(SEEDER), end("a")]
    stage = object.__new__(Stage)
    trace = SimpleNamespace(entries=lambda limit: entries)
    handle = SimpleNamespace(trace=trace, timeline=timeline)
    stage.cluster = cast(Cluster, SimpleNamespace(handle=handle))
    run = stage.add_evidence(Run(Plan(), Outputs([], []), [], 0.0, [], [], ""))
    assert run.timelines == {"a": "timeline of a"}
    assert {each.transactional_id for each in run.trace} == {"a", "refused"}


def test_an_act_that_ends_between_two_looks_has_started_what_it_starts() -> None:
    """An instance was asked to end; that the next one has started is known no sooner than that the act is over."""
    stage, instances = object.__new__(Stage), list[int]()
    looks = iter([(False, False), (False, False), (True, False), (True, False)])
    stage.workload = cast(Any, SimpleNamespace(until=Until()))
    stage._state = lambda job: next(looks)  # type: ignore[method-assign]

    class Acting:
        @property
        def is_over(self) -> bool:
            instances.append(1)
            return True

        time = SimpleNamespace(keep=lambda: None)

    class Instances:
        @property
        def has_ended(self) -> bool:
            return not instances

        def supervise(self) -> None: ...

    assert stage._wait(cast(Any, Instances()), cast(Any, Acting()), Patience(60.0, None), None) == ""


def test_a_node_that_is_killed_while_outputs_settle_is_waited_for() -> None:
    """A fault may strike behind the last record: at a heartbeat, or when the job closes its producer."""
    stage, looks = object.__new__(Stage), iter([ControlRefused(409, "no running node leads out-0"), []])

    def records(topics: object, isolation: str = "") -> list[Any]:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    cluster = SimpleNamespace(revive=lambda: None, open_transactions=lambda topics: [], records=records)
    stage.cluster = cast(Cluster, cluster)
    stage.workload = cast(Any, SimpleNamespace(outputs=["out"]))
    seen: list[Outputs] = []
    stage._settle(lambda outputs: seen.append(outputs) is None)
    assert [each.written for each in seen] == [[]]


def test_idle_is_what_has_no_newer_number_for_so_long() -> None:
    now = iter([0.0, 1.0, 1.0, 3.0, 4.0])
    idleness = Idleness(lambda: next(now))
    assert idleness.lasts_s(7) == 0.0
    assert idleness.lasts_s(7) == 2.0
    assert idleness.lasts_s(0) == 3.0
