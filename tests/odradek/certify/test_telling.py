"""The progress output of a run without faults."""

from __future__ import annotations

from pathlib import Path

from odradek.certify.jobs.job import Exit
from odradek.certify.runs.telling import EVERY_S, LINES_MAX, Telling


def test_first_lines_ends_and_what_is_waited_for_are_told(tmp_path: Path) -> None:
    told: list[str] = []
    exits: list[Exit] = []
    now = [0.0]
    telling = Telling(told.append, tmp_path, exits, lambda: now[0])
    log = tmp_path / "job-1.log"
    log.write_text("begins\nhalf a li")
    telling.look(lambda: "waits")
    assert told == ["  job-1: begins"]

    log.write_text("begins\nhalf a line\n")
    exits.append(Exit(1, 3))
    telling.look(lambda: "waits")
    assert told[1:] == ["  job-1: half a line", "instance 1 ended with exit code 3"]

    telling.look(lambda: "waits")
    now[0] += EVERY_S
    telling.look(lambda: "waits")
    telling.look(lambda: "waits")
    assert told[3:] == ["waits"]


def test_output_of_megabytes_is_truncated(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "job-1.log").write_text("x" * 900 + "\n" + "line\n" * 100_000)
    telling = Telling(told.append, tmp_path, [], lambda: 0.0)
    for _ in range(3):
        telling.look(str)
    assert len(told) == LINES_MAX
    assert max(map(len, told)) < 300
