"""The audit's queries, on logs that the tests define: each case has its findings, and there are no others.

All cases are in one ``World`` (``literal.py``) and one audit, because most of a query's time is spent on planning it.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest

from odradek.spark.audit import run, tables
from odradek.spark.audit.cluster_metadata import ClusterMetadata
from odradek.spark.audit.directories import LogDirectory
from odradek.spark.audit.report import Report
from odradek.spark.segments import schemas
from tests.spark.audit.literal import COPIED, DIRECTORY, EPOCH, SIZE, STOPPED, World
from tests.spark.audit.scenarios import BROKEN, LEGAL, Expected

pytestmark = pytest.mark.spark

WARNINGS = {
    "torn",
    "unacknowledged_copies",
    "hole_in_a_copied_partition",
    "abort_behind_a_commit_of_its_epoch",
    "zeros_before_the_last_segment",
    "zeros_between_batches",
    "__consumer_offsets",
}
"""Topics of cases that a crash, compaction or an expired decision may explain, so that they are warnings."""
STORIES = BROKEN | LEGAL


class Audited:
    """All cases, and the audit's findings for them."""

    def __init__(self, report: Report, expected: dict[str, Expected], page: Path) -> None:
        self.report, self.expected, self.page = report, expected, page

    def of(self, story: str) -> Expected:
        expected = self.expected[story]
        elsewhere = {place for place in expected if not str(place[1]).startswith(story)}
        return {
            place
            for each in self.report.findings
            if (place := (each.name, str(each.topic), each.partition or 0, each.offset)) in elsewhere
            or each.topic == story
        }


@pytest.fixture(scope="module")
def audited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    world = World()
    expected = {name: story(world) for name, story in STORIES.items()}
    directories = [
        LogDirectory(
            path,
            whole=path != COPIED,
            cleaned_up_to=world.cleaned if path == DIRECTORY else world.cleaned_elsewhere.get(path, {}),
            node_id=number,
            stopped_cleanly=path == STOPPED,
            high_watermarks=world.high_watermarks.get(path, {}),
            recovery_points=world.recovery_points if path == DIRECTORY else {},
            coordinator_partitions=frozenset({0}),
        )
        for number, path in enumerate((DIRECTORY, "/data-2", COPIED, STOPPED), 1)
    ]
    epoch_ms = int(EPOCH.timestamp() * 1000)
    metadata = ClusterMetadata(
        complete=True,
        broker_ids={1, 2},
        created_ms={key: epoch_ms + ms for key, ms in world.created.items()},
    )
    source = tables.Source(DIRECTORY, tuple({each[:3] for each in world.batches}), directories, metadata)
    rows = {"batches": world.batches, "transaction_state": world.states, "offsets": world.offsets}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "find", lambda paths: source)
        patch.setattr(
            tables,
            "load",
            lambda spark, source, table: spark.createDataFrame(rows[table], schemas.TABLES[table]),
        )
        out = tmp_path_factory.mktemp("audit")
        report = run.audit(spark, DIRECTORY, out)
    return Audited(report, expected, out / "report.html")


@pytest.mark.parametrize("story", sorted(STORIES))
def test_a_story_is_judged_right(audited: Audited, story: str) -> None:
    assert audited.of(story) == audited.expected[story]


def test_nothing_is_found_beside_the_stories(audited: Audited) -> None:
    everything = set().union(*audited.expected.values())
    found = {(each.name, each.topic, each.partition, each.offset) for each in audited.report.findings}
    assert found == everything


def test_what_may_be_in_order_is_a_warning(audited: Audited) -> None:
    assert {each.topic for each in audited.report.findings if each.severity == "warning"} == WARNINGS


def test_each_finding_leads_to_a_batch(audited: Audited) -> None:
    """File and position of each finding are those of the batch at its offset."""
    named = {(each.topic, each.offset): (each.file, each.position) for each in audited.report.findings}
    assert named["duplicate", 6] == (f"{0:020d}.log", 2 * SIZE)
    assert all(file for (_, offset), (file, _) in named.items() if offset is not None)


def test_a_finding_names_the_transactional_id(audited: Audited) -> None:
    (mixed,) = (each for each in audited.report.findings if each.topic == "mixed")
    assert (mixed.transactional_id, mixed.producer_epoch) == ("mixed", 1)


def test_a_transaction_counts_once(audited: Audited) -> None:
    """A transaction in several partitions is counted once. The counts are by topic, and each case has its own topic."""
    counts = {row["topic"]: row for row in audited.report.tables["outcomes"]}
    both = counts["transactions_of_both_versions"]
    # Three transactions in three partitions with epochs of their own, then four in two partitions that share an epoch.
    assert (both["commit_transactions"], both["abort_transactions"]) == (2 + 2, 1 + 2)
    # Only the markers are left: the n-th markers of a kind in all partitions belong to one transaction.
    forgotten = counts["offsets_with_forgotten_decisions"]
    assert (forgotten["commit_transactions"], forgotten["abort_transactions"]) == (2, 1)
    assert counts["under_way"]["open_transactions"] == 1
    assert sum(row["transactions"] for row in audited.report.tables["timeline"]) == (
        audited.report.figures["committed_transactions"] + audited.report.figures["aborted_transactions"]
    )


def test_the_page_shows_the_verdict_and_each_kind(audited: Audited) -> None:
    page = audited.page.read_text("utf-8")
    assert html.escape(audited.report.verdict) in page
    assert all(f'id="{kind}"' in page for kind, _ in audited.report.counts)
