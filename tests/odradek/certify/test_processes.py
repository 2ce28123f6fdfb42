"""The processes of an instance are found, also when they have become daemons."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from odradek.certify.jobs import processes
from odradek.certify.jobs.job import wait_until
from odradek.certify.jobs.processes import (
    MARK,
    ORPHANS,
    Process,
    StillAlive,
    Tree,
    await_ends,
    members,
    table,
)
from tests.support.deadlines import HANG_S

SLEEPS = "import time; time.sleep(600)"
DAEMON = f"""
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
print(os.getpid(), flush=True)
{SLEEPS}
"""


def process(pid: int, parent: int = 1, group: int = 1, is_marked: bool = False) -> Process:
    return Process(pid, parent, group, group, 0.0, False, is_marked)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([process(70_001, is_marked=True), process(70_002)], {70_001}),
        ([process(70_001, group=70_000), process(70_002, parent=70_001)], {70_001, 70_002}),
        (
            [process(70_003, parent=70_002), process(70_002, parent=70_001), process(70_001, is_marked=True)],
            {70_001, 70_002, 70_003},
        ),
        ([process(os.getpid(), is_marked=True), process(70_001, parent=os.getpid())], set()),
    ],
)
def test_a_process_belongs_by_its_mark_its_group_or_its_parent(
    rows: Sequence[Process], expected: set[int]
) -> None:
    assert {each.pid for each in members(rows, {70_000})} == expected


def test_one_that_was_seen_belongs_whatever_became_of_its_parent() -> None:
    assert members([process(70_005)], (), {(70_005, 0.0)}) == [process(70_005)]
    assert members([process(70_005)], (), {(70_005, 1.0)}) == []  # another process with a reused id


@pytest.fixture
def orphans() -> Iterator[None]:
    ORPHANS.adopt()
    yield
    ORPHANS.leave()


OURS = f"m{os.getpid()}."
"""Value of the environment variable that marks the processes of this pytest run: several runs may share a machine."""


def started(code: str, log: Path, mark: str = OURS) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        environment = {**os.environ, MARK: mark}
        return subprocess.Popen(
            [sys.executable, "-c", code], stdout=output, env=environment, start_new_session=True
        )


@pytest.mark.usefixtures("orphans")
def test_a_daemon_is_found_frozen_and_killed(tmp_path: Path) -> None:
    root = started(DAEMON, tmp_path / "log")
    assert root.wait(HANG_S) == 0
    tree = Tree(OURS, [root.pid])
    assert wait_until(lambda: bool((tmp_path / "log").read_text()), HANG_S)
    (daemon,) = tree.processes()
    assert daemon.pid == int((tmp_path / "log").read_text())
    tree.freeze()
    assert wait_until(lambda: psutil.Process(daemon.pid).status() == psutil.STATUS_STOPPED, HANG_S)
    assert tree.kill() == 1
    assert tree.processes() == []
    assert not psutil.pid_exists(daemon.pid)  # it became a child of this process, which has reaped it


CHAIN = """
import os, sys, time
for _ in range(1000):
    time.sleep(0.005)
    if os.fork():
        os._exit(0)
time.sleep(600)
"""


@pytest.mark.usefixtures("orphans")
def test_a_process_that_starts_its_successor_and_ends_is_killed(tmp_path: Path) -> None:
    """A chain of processes that start their successor and end is killed.

    A single read of the process table may find none of the processes.
    """
    root = started(CHAIN, tmp_path / "log", f"chain-{OURS}")
    assert root.wait(HANG_S) == 0
    Tree(f"chain-{OURS}", [root.pid]).kill()
    left = [each for each in table(b"") if each.group == root.pid and not each.has_ended]
    assert left == []


def test_what_cannot_be_killed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = started(SLEEPS, tmp_path / "log", f"stays-{OURS}")
    tree = Tree(f"stays-{OURS}", [root.pid])
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda *_: None)
        patched.setattr(processes, "KILLED_S", 0.0)
        with pytest.raises(StillAlive, match=rf"cannot be killed: {root.pid} \("):
            tree.kill()
    assert tree.kill() == 1
    root.wait(HANG_S)


def test_the_end_of_processes_is_waited_for(tmp_path: Path) -> None:
    one, two = started("pass", tmp_path / "one"), started(SLEEPS, tmp_path / "two")
    assert await_ends([one.pid], HANG_S)
    assert not await_ends([one.pid, two.pid], 0.0)
    two.kill()
    assert await_ends([one.pid, two.pid], HANG_S)
    one.wait(HANG_S), two.wait(HANG_S)


@pytest.mark.parametrize("look", [processes.table, processes.table_by_psutil])
def test_tables_of_processes_agree(look: Callable[[bytes], Iterator[Process]], tmp_path: Path) -> None:
    """Both ways to read the process table give the same: psutil on every system, and a faster way on Linux."""
    root = started(f"print('hello', flush=True); {SLEEPS}", tmp_path / "log", f"both-{OURS}")
    # A process that is just being started has no readable environment yet.
    assert wait_until(lambda: bool((tmp_path / "log").read_text()), HANG_S)
    (found,) = [each for each in look(f"{MARK}=both-{OURS}".encode()) if each.is_marked]
    assert (found.pid, found.parent, found.group, found.session) == (
        root.pid,
        os.getpid(),
        root.pid,
        root.pid,
    )
    assert not found.has_ended
    root.kill()
    assert await_ends([root.pid], HANG_S)
    (found,) = [each for each in look(b"") if each.pid == root.pid]
    assert found.has_ended
    root.wait(HANG_S)
