"""Crash points: the process kills itself at the configured passage of a crash point, and at no other."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.injection import crash
from broker.injection.crash import Countdown, UnknownCrashPoint, crash_point, on_passage, parse_crash_points
from storage.files import AppendFile
from tests.support.deadlines import HANG_S


def test_every_point_is_somewhere_in_the_broker() -> None:
    sources = "".join(path.read_text("utf-8") for path in Path(crash.__file__).parents[1].rglob("*.py"))
    passed = set(re.findall(r'crash_point(?:\(|, )"([^"]+)"', sources))
    assert passed == crash.CRASH_POINTS


def test_no_point_does_anything_unless_armed() -> None:
    for name in crash.CRASH_POINTS:
        crash_point(name)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("", {}),
        (" , ", {}),
        ("file.write", {"file.write": 1}),
        ("txn.prepare.before:3,txn.marker.after:1", {"txn.prepare.before": 3, "txn.marker.after": 1}),
        (" file.write:12 , group.append.after ", {"file.write": 12, "group.append.after": 1}),
    ],
)
def test_points_are_named_with_the_passage_that_kills(text: str, points: dict[str, int]) -> None:
    assert parse_crash_points(text) == points


@pytest.mark.parametrize(
    "text", ["txn.prepair.before", "file.write:0", "file.write:-1", "file.write:x", ":3"]
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UnknownCrashPoint):
        parse_crash_points(text)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownCrashPoint, match=r"txn\.prepair.*txn\.prepare\.before"):
        parse_crash_points("txn.prepair.before")


def test_the_nth_passage_acts_once() -> None:
    deaths: list[str] = []
    with on_passage(Countdown({"file.write": 3}, deaths.append)):
        for name in ["file.write", "txn.marker.before", "file.write"]:
            crash_point(name)
        assert deaths == []
        crash_point("file.write")
        crash_point("file.write")
    assert deaths == ["file.write"]


def test_a_test_sees_every_passage_and_may_raise_instead_of_dying() -> None:
    class Crash(Exception):
        pass

    def raise_at_marker(name: str) -> None:
        if name == "txn.marker.before":
            raise Crash

    with on_passage(raise_at_marker):
        crash_point("txn.prepare.after")
        with pytest.raises(Crash):
            crash_point("txn.marker.before")
    crash_point("txn.marker.before")


@pytest.mark.parametrize(
    ("ignored", "code"), [("", -signal.SIGKILL), ("os.kill = lambda *_: None", 128 + signal.SIGKILL)]
)
def test_an_armed_process_dies_by_sigkill_and_runs_nothing_more(ignored: str, code: int) -> None:
    """The second passage of an armed crash point ends the process by SIGKILL, without any Python cleanup. The first process
    of a container ends too, although the kernel ignores a SIGKILL that this process sends to itself."""
    program = f"""
import atexit, os, sys
from broker.injection.crash import arm, crash_point
{ignored}
atexit.register(print, "atexit")
arm("file.write:2")
try:
    crash_point("file.write")
    sys.stdout.write("one\\n"); sys.stdout.flush()
    crash_point("file.write")
finally:
    print("finally", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (done.returncode, done.stdout) == (code, "one\n")


def test_each_system_call_that_changes_a_file_is_a_passage(tmp_path: Path) -> None:
    passages: list[str] = []
    file = AppendFile(tmp_path / "00000000000000000000.log")
    with on_passage(passages.append):
        file.append((b"one",), 3)
        file.append((b"two", b"three"), 8)
    file.append((b"four",), 4)
    file.close()
    assert passages == ["file.change", "file.write", "file.write"]
