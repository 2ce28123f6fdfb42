"""Functions of the programs that record and run stories: selection, early ends, outdated files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from tests.differential import runner
from tests.differential.runner import Transcript


class Recorded(Protocol):
    """A story (scripted requests or commands) whose responses from Apache Kafka are recorded."""

    @property
    def area(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=Recorded)


def chosen(entries: Iterable[R], group: str, wanted: Sequence[str]) -> list[R]:
    """Stories of a profile or scene ``group`` that ``wanted`` selects, by the name of the group or by prefixes of ids.

    If ``wanted`` is empty, all stories are selected.
    """
    return [
        entry
        for entry in entries
        if not wanted or any(each == group or entry.id.startswith(each) for each in wanted)
    ]


def say_early_end(transcript: Transcript) -> None:
    for step in transcript:
        if step["ask"] == "ended early":
            print("   ended early:", step["answer"])


def drop_strays(
    folder: Path, entries: Iterable[Recorded], save: Callable[[str, dict[str, Transcript]], None]
) -> None:
    """Delete recordings of stories that no longer exist."""
    known = {(entry.area, entry.name) for entry in entries}
    for file in folder.glob("*.json"):
        area = file.stem
        kept = {name: told for name, told in runner.load(area, folder).items() if (area, name) in known}
        if kept:
            save(area, kept)
        else:
            file.unlink()
