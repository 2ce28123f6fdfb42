"""Processes that are killed while they write: what they were told is there, once, in order, whole.

``ODRADEK_KILLS=5000`` for longer.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from random import Random

import pytest

from tests.storage.crashing import write_until_killed
from tests.storage.load import ACKNOWLEDGED_BYTES, Acknowledged, check, check_files, next_numbers, open_logs

KILLS = int(os.environ.get("ODRADEK_KILLS", "100"))
KILLS_PER_FOLDER = 20
ACKNOWLEDGED_MAX = 150
"""How many batches a child may be told of before it is killed."""

# Children are forked from a process that has imported everything and has one thread.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.storage.crashing"])


def write_and_be_killed(root: Path, rng: Random, told: list[Acknowledged]) -> list[Acknowledged]:
    """Let a child write and kill it at a random moment; returns what it was told."""
    reader, writer = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(
        target=write_until_killed, args=(root, rng.getrandbits(32), writer, next_numbers(told))
    )
    child.start()
    writer.close()
    # 0: while it opens the logs.
    wanted = rng.choice((0, 1, rng.randint(1, ACKNOWLEDGED_MAX))) * ACKNOWLEDGED_BYTES
    heard = b""
    with reader:
        while len(heard) < wanted:
            more = os.read(reader.fileno(), 1 << 16)
            assert more, "it has ended by itself"
            heard += more
        for _ in range(rng.randrange(30_000)):  # up to a millisecond
            pass
        child.kill()
        while more := os.read(reader.fileno(), 1 << 16):
            heard += more
    child.join()
    assert child.exitcode == -signal.SIGKILL
    return Acknowledged.decode(heard)


@pytest.mark.parametrize("folder", range(max(KILLS // KILLS_PER_FOLDER, 1)))
def test_what_was_acknowledged_survives_every_kill(tmp_path: Path, folder: int):
    rng = Random(folder)
    told: list[Acknowledged] = []
    for _ in range(min(KILLS, KILLS_PER_FOLDER)):
        told += write_and_be_killed(tmp_path, rng, told)
        logs = open_logs(tmp_path)
        check(logs, told)
        for log in logs:
            log.close(clean=False)
    for log in open_logs(tmp_path):
        check_files(log)
    check(open_logs(tmp_path, clean=True), told)
    assert len({(one.partition, one.base_offset) for one in told}) > KILLS_PER_FOLDER
