"""`odradek audit` that cannot run, because there is nothing to audit or no Java, prints one sentence and exits with 2."""

from __future__ import annotations

import fcntl
import io
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner
from rich.console import Console

from odradek.cli import main
from odradek.spark import environment
from odradek.spark.audit.directories import LogDirectory, is_locked, look_at
from odradek.spark.audit.findings import VIOLATION
from odradek.spark.audit.progress import LINE_EVERY_S, shown, tasks
from odradek.spark.audit.report import Finding, Report
from odradek.spark.audit.run import BadKey, audit
from tests.support.segment_tables import segment


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["audit", *arguments])
    return result.exit_code, result.output


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    code, said = run(str(tmp_path / "nowhere"), "--out", str(tmp_path / "out"))
    assert (code, said) == (2, f"Error: {tmp_path / 'nowhere'} is not a directory.\n")
    assert not (tmp_path / "out").exists()


def test_a_directory_without_partitions(tmp_path: Path) -> None:
    code, said = run(str(tmp_path), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "partition" in said


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment(tmp_path / "data" / "orders-0", b"")

    def missing(app: str) -> None:
        raise environment.JavaMissing("Spark needs Java 17 or newer: install one")

    monkeypatch.setattr(environment, "session", missing)
    code, said = run(str(tmp_path / "data"), "--out", str(tmp_path / "out"))
    assert (code, said) == (2, "starting Spark\nError: Spark needs Java 17 or newer: install one\n")


def test_findings_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = dict.fromkeys(field.name for field in fields(Finding) if field.init)
    found: dict[str, Any] = {
        **places,
        "name": "damage",
        "severity": VIOLATION,
        "topic": "orders",
        "detail": "its CRC differs",
    }
    report = Report(str(tmp_path), False, {("damage", VIOLATION): 3}, [Finding(**found)], {})
    monkeypatch.setattr("odradek.commands.audit._audit", lambda *_, **__: report)
    code, said = run(str(tmp_path), "--out", str(tmp_path / "out"), "--json")
    shown = json.loads(said)
    assert (code, shown["violations"], shown["warnings"]) == (1, 3, 0)
    assert [(each["name"], each["kind"], each["topic"]) for each in shown["findings"]] == [
        ("damage", "damage", "orders")
    ]
    assert shown["report"] == str(tmp_path / "out" / "report.html")


def test_a_key_that_is_none(tmp_path: Path) -> None:
    code, said = run(str(tmp_path), "--out", str(tmp_path / "out"), "--unique", "orders")
    assert code == 2
    assert "TOPIC=EXPRESSION" in said


def test_a_key_of_a_topic_that_is_not_there(tmp_path: Path) -> None:
    """A business key for a topic that does not exist is an error: it would be checked nowhere, and seem unique."""
    segment(tmp_path / "data" / "orders-0", b"")
    with pytest.raises(BadKey, match=r"There is no topic oders in .*data"):
        audit(MagicMock(), tmp_path / "data", tmp_path / "out", unique={"oders": "key"})


def test_the_program_to_submit_is_the_command() -> None:
    arguments = [sys.executable, "-m", "odradek.spark.audit", "--help"]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    assert said.startswith("Usage: odradek audit [OPTIONS] DATA_DIR")


def test_a_directory_where_a_broker_is_at_work(tmp_path: Path) -> None:
    """The audit notices a broker that has locked the directory, and does not take the lock itself.

    Another process holds the lock, because a process does not see its own locks.
    """
    lock = tmp_path / ".lock"
    assert not is_locked(lock)
    lock.touch()
    assert not is_locked(lock)
    hold = f"import fcntl, sys; f = open({str(lock)!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    arguments = [sys.executable, "-c", hold]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert is_locked(lock)
        assert look_at(str(tmp_path)).live
        holder.communicate("\n")
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_checkpoint_files_are_read_and_bad_ones_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\na-b 0 17\na-b 11 3\n")
    (tmp_path / "cleaner-offset-checkpoint").write_text("")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nmalformed\n")
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert not look_at(str(tmp_path)).whole
    (tmp_path / "meta.properties").touch()
    for number in (0, 1, 2):
        (tmp_path / f"__transaction_state-{number}").mkdir()
    (tmp_path / "__transaction_state-3.0123-delete").mkdir()
    found = look_at(str(tmp_path))
    assert found == LogDirectory(
        str(tmp_path),
        stopped_cleanly=True,
        log_starts={("a-b", 0): 17, ("a-b", 11): 3},
        coordinator_partitions=frozenset({0, 1, 2}),
    )


class Tracker:
    """A fake of Spark's status tracker, with two active stages; one of them has no information, as it has just ended."""

    def getActiveStageIds(self) -> list[int]:
        return [3, 4]

    def getStageInfo(self, stage: int) -> Any:
        return SimpleNamespace(numCompletedTasks=37, numTasks=120) if stage == 3 else None


def test_a_terminal_shows_steps_and_tasks() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    with shown(terminal) as say:
        say("reading")
        say("asking")
        say.look(tasks(Tracker()))
    assert isinstance(terminal.file, io.StringIO)
    assert "asking" in terminal.file.getvalue()
    assert "120" in terminal.file.getvalue()


def test_elsewhere_each_step_is_a_line_and_a_long_one_says_how_far_it_is() -> None:
    pipe, now = Console(file=io.StringIO(), force_terminal=False), [0.0]
    with shown(pipe, lambda: now[0]) as say:
        say("reading")
        for now[0] in (LINE_EVERY_S / 2, LINE_EVERY_S, LINE_EVERY_S + 1):
            say.look(tasks(Tracker()))
    assert isinstance(pipe.file, io.StringIO)
    assert pipe.file.getvalue() == "reading\nreading: 37 of 120 tasks\n"
