"""Each story on our broker gets the responses that were recorded with Apache Kafka.

Each difference must match a row of a table in docs/differences.md, and each row must match a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.exchanges import exchanges_of, to_json
from tests.compatibility.verdicts import keep
from tests.differential import listed, runner
from tests.differential.ours import Ours, ours
from tests.differential.story import Entry

pytestmark = pytest.mark.xdist_group("differential")
ENTRIES = runner.entries()


@pytest.fixture(scope="module")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    with ours(tmp_path_factory.mktemp("differential")) as told:
        yield told


def differences(entry: Entry, told: Ours) -> list[runner.Difference]:
    kafka = runner.recorded(entry)
    assert kafka is not None, f"{entry.id} is not recorded: python -m tests.differential.record {entry.id}"
    return runner.differences(entry, kafka, told.transcript(entry))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_as_kafka(entry: Entry, our_broker: Ours) -> None:
    table, all_found = listed.rows(), differences(entry, our_broker)
    kafka = runner.recorded(entry)
    assert kafka is not None
    keep({"story": entry.id, "exchanges": to_json(exchanges_of(kafka, all_found, table))})
    found = listed.unlisted(all_found, table)
    assert not found, "\n" + "\n".join(map(str, found))


def test_every_listed_difference_is_one(our_broker: Ours) -> None:
    table = [row for row in listed.rows() if not row.is_of_clusters]
    named = [entry for entry in ENTRIES if any(row.has_story(f"{entry.area}.{entry.name}") for row in table)]
    stale = listed.stale([d for entry in named for d in differences(entry, our_broker)], table)
    assert not stale, f"listed in docs/differences.md, and no longer different: {sorted(stale)}"


def test_nothing_differs_where_every_record_is_read(tmp_path: Path) -> None:
    """With odradek.produce.reads.records two differences disappear: records-not-read and max-timestamp-kept."""
    rows = listed.rows()
    switched_off = [row for row in rows if row.id in ("records-not-read", "max-timestamp-kept")]
    stories = {story for row in switched_off for story in row.stories}
    with ours(tmp_path, {"odradek.produce.reads.records": "true"}) as told:
        found = [
            difference
            for entry in ENTRIES
            if f"{entry.area}.{entry.name}" in stories
            for difference in differences(entry, told)
        ]
    left = [row for row in rows if row not in switched_off]
    assert len(stories) == 7
    assert not listed.unlisted(found, left), "\n".join(map(str, found))


def test_the_corpus_is_large() -> None:
    exchanges = [e for entry in runner.entries() for e in runner.recorded(entry) or []]
    assert len(exchanges) >= 2000
    assert not [e for e in exchanges if e["ask"] == "ended early"]


def test_no_recording_without_its_story() -> None:
    known = {(entry.area, entry.name) for entry in runner.entries()}
    areas = [file.stem for file in runner.RECORDED.glob("*.json")]
    assert {(area, name) for area in areas for name in runner.load(area)} == known
