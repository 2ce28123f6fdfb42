"""Each story with three nodes gets the responses that were recorded with three brokers of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compatibility.exchanges import exchanges_of, to_json
from tests.compatibility.verdicts import keep
from tests.differential import listed, runner
from tests.differential.cluster import running
from tests.differential.cluster.running import Stage
from tests.differential.cluster.sides import our_side
from tests.differential.cluster.story import Entry
from tests.differential.runner import Transcript

pytestmark = pytest.mark.xdist_group("differential")
ENTRIES = running.entries()


class Ours:
    """Runs a scene when the first of its stories is needed."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._transcripts: dict[str, Transcript] = {}

    def transcript(self, entry: Entry) -> Transcript:
        if entry.id not in self._transcripts:
            scene = running.SCENES[entry.scene]
            self._transcripts |= running.play(self._stage, scene, running.entries(scene.name))
        return self._transcripts[entry.id]

    @staticmethod
    def recorded(entry: Entry) -> Transcript:
        kafka = running.recorded(entry)
        assert kafka is not None, f"not recorded: python -m tests.differential.cluster.record {entry.id}"
        return kafka

    def differences(self, entry: Entry) -> list[runner.Difference]:
        return runner.differences(entry, self.recorded(entry), self.transcript(entry))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    with our_side(tmp_path_factory.mktemp("cluster")) as side, Stage(side) as stage:
        yield Ours(stage)


@pytest.mark.more
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_as_kafka(entry: Entry, ours: Ours) -> None:
    all_found, table = ours.differences(entry), listed.rows()
    keep({"story": entry.id, "exchanges": to_json(exchanges_of(ours.recorded(entry), all_found, table))})
    found = listed.unlisted(all_found, table)
    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.more
def test_every_listed_difference_is_one(ours: Ours) -> None:
    found = [difference for entry in ENTRIES for difference in ours.differences(entry)]
    stale = listed.stale(found, [row for row in listed.rows() if row.is_of_clusters])
    assert not stale, f"listed in docs/differences.md, and no longer different: {sorted(stale)}"


def test_no_story_ended_early() -> None:
    exchanges = [exchange for entry in running.entries() for exchange in running.recorded(entry) or []]
    assert not [exchange for exchange in exchanges if exchange["ask"] == "ended early"]


def test_no_recording_without_its_story() -> None:
    known = {(entry.area, entry.name) for entry in running.entries()}
    areas = [file.stem for file in running.RECORDED.glob("*.json")]
    assert {(area, name) for area in areas for name in runner.load(area, running.RECORDED)} == known
