"""Runs stories of commands on a broker, stores the output with Apache Kafka as files, and compares ours with it."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.differential import runner
from tests.differential.console_tools import stories
from tests.differential.console_tools.nodes import NodesStory
from tests.differential.console_tools.sides import Side
from tests.differential.console_tools.story import STORIES, ToolStory
from tests.differential.runner import ABSENT, Difference, Transcript
from tests.differential.story import Entry, Unanswered
from tests.support import raw

__all__ = ["Difference", "Entry", "Transcript"]

RECORDED = Path(__file__).parent / "recorded"

assert stories


def entries(profile: str | None = None) -> list[Entry]:
    return [entry for entry in STORIES.values() if profile in (None, entry.profile)]


def run(entry: Entry, side: Side, attempt: int = 0) -> Transcript:
    """Run one story (a recorded sequence of commands) and return its transcript.

    If an error ends the story early, the error is the transcript's last entry. ``attempt`` makes the names that the
    story creates unique on the same broker.
    """
    if side.stage is None:
        told = ToolStory(
            entry, side.host, side.port, attempt, data_dir=side.data_dir, sasl_port=side.sasl_port
        )
    else:
        told = NodesStory(entry, side.host, side.port, attempt, data_dir=side.data_dir, stage=side.stage)
    try:
        entry.run(told)
    except Unanswered as error:
        told.put("ended early", str(error))
    except (raw.Closed, raw.Silence, raw.Malformed, OSError, LookupError, TypeError, AssertionError) as error:
        told.put("ended early", f"{type(error).__name__}: {error}")
    finally:
        told.close()
    return json.loads(json.dumps(told.transcript))


# -- recordings ----------------------------------------------------------------------------------------------------


def load(tool: str) -> dict[str, Transcript]:
    return runner.load(tool, RECORDED)


def save(tool: str, transcripts: dict[str, Transcript], folder: Path = RECORDED) -> None:
    """Write the recordings, with one line of the file for each line of output."""
    folder.mkdir(exist_ok=True)
    (folder / f"{tool}.json").write_text(
        json.dumps(transcripts, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    )


# -- comparison ----------------------------------------------------------------------------------------------------


def differences(entry: Entry, kafka: Transcript, ours: Transcript) -> list[Difference]:
    """Lines of output that differ between Kafka and our broker, or that only one of them has."""
    found = []
    for number, (theirs, mine) in enumerate(zip_longest(kafka, ours, fillvalue=None)):
        ask = theirs["ask"] if theirs else ABSENT
        if theirs is None or mine is None or ask != mine["ask"]:
            found.append(Difference(entry.id, number, ask, "ask", theirs or ABSENT, mine or ABSENT))
            break
        for field, a, b in _between(theirs["answer"], mine["answer"]):
            found.append(Difference(entry.id, number, ask, field, a, b))
    return found


def _between(kafka: Any, ours: Any) -> list[tuple[str, Any, Any]]:
    if not isinstance(kafka, dict) or not isinstance(ours, dict):
        return [] if kafka == ours else [("answer", kafka, ours)]
    found = [] if kafka["status"] == ours["status"] else [("status", kafka["status"], ours["status"])]
    for stream in ("out", "err"):
        theirs, mine = kafka[stream], ours[stream]
        for what, a, b, c, d in SequenceMatcher(None, theirs, mine, autojunk=False).get_opcodes():
            if what != "equal":
                pairs = zip_longest(theirs[a:b], mine[c:d], fillvalue=ABSENT)
                found += [(stream, one, other) for one, other in pairs]
    return found
