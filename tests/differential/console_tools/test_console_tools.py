"""Each story of commands on our broker has the output and exit codes that were recorded with Apache Kafka.

Each difference must match a row of a table in docs/differences.md, and each row must match a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.differential import listed
from tests.differential.console_tools import runner
from tests.differential.console_tools.sides import Side, our_side
from tests.differential.console_tools.story import TOOLS

pytestmark = pytest.mark.foreign
ENTRIES = runner.entries()
# Stories of this tool show how a broker refuses streams groups, which it does not have.
# They are compared, but do not count on the compatibility page.
NOT_SHOWN_TO_WORK = frozenset({"kafka-streams-groups"})


class Ours:
    """Runs each story once, on one broker for each profile, which is started for the first story of the profile."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._sides: dict[str, Side] = {}
        self._found: dict[str, list[runner.Difference]] = {}

    def differences(self, entry: runner.Entry) -> list[runner.Difference]:
        if entry.id not in self._found:
            recorded = runner.load(entry.area).get(entry.name)
            assert recorded is not None, (
                f"not recorded: python -m tests.differential.console_tools.record {entry.id}"
            )
            self._found[entry.id] = runner.differences(
                entry, recorded, runner.run(entry, self._side(entry.profile))
            )
        return self._found[entry.id]

    def _side(self, profile: str) -> Side:
        if profile not in self._sides:
            self._sides[profile] = self._stack.enter_context(our_side(profile, self._directory / profile))
        return self._sides[profile]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    with ExitStack() as stack:
        yield Ours(tmp_path_factory.mktemp("console-tools"), stack)


def marks_of(entry: runner.Entry) -> tuple[pytest.MarkDecorator, ...]:
    return () if entry.area in NOT_SHOWN_TO_WORK else (pytest.mark.tool(entry.area),)


@pytest.mark.parametrize(
    "entry", [pytest.param(entry, id=entry.id, marks=marks_of(entry)) for entry in ENTRIES]
)
def test_as_on_kafka(entry: runner.Entry, ours: Ours) -> None:
    found = listed.unlisted(ours.differences(entry), listed.rows(columns=listed.COLUMNS_OF_TOOLS))
    assert not found, "\n" + "\n".join(map(str, found))


def test_every_listed_difference_is_one(ours: Ours) -> None:
    found = [difference for entry in ENTRIES for difference in ours.differences(entry)]
    stale = listed.stale(found, listed.rows(columns=listed.COLUMNS_OF_TOOLS))
    assert not stale, f"listed in docs/differences.md, and no longer different: {sorted(stale)}"


def test_every_tool_has_a_story() -> None:
    used = {
        step["ask"].split()[0] for entry in ENTRIES for step in runner.load(entry.area).get(entry.name, [])
    }
    assert used == set(TOOLS)


def test_no_recording_without_its_story_and_none_that_ended_early() -> None:
    areas = [file.stem for file in runner.RECORDED.glob("*.json")]
    recorded = {(area, name): steps for area in areas for name, steps in runner.load(area).items()}
    assert set(recorded) == {(entry.area, entry.name) for entry in runner.entries()}
    assert not [step for steps in recorded.values() for step in steps if step["ask"] == "ended early"]
