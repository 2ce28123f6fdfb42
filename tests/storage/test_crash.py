"""Processes that are killed while they write: each acknowledged batch is there once, in order, and complete.

``ODRADEK_KILLS=5000`` runs more kills.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random

import pytest

from tests.storage.crashing import write_until_killed
from tests.storage.load import ACKNOWLEDGED_BYTES, Acknowledged, check, check_files, next_numbers, open_logs
from tests.support.forked import CONTEXT

KILLS = int(os.environ.get("ODRADEK_KILLS", "100"))
KILLS_PER_FOLDER = 20
ACKNOWLEDGED_MAX = 150
"""Maximum number of batches that a child acknowledges before it is killed."""


def write_and_be_killed(root: Path, rng: Random, told: list[Acknowledged]) -> list[Acknowledged]:
    """Run a child process that writes, and kill it at a random moment.

    ``told``: the batches that earlier child processes acknowledged. Returns those that this process acknowledged.
    """
    reader, writer = CONTEXT.Pipe(duplex=False)
    child = CONTEXT.Process(
        target=write_until_killed, args=(root, rng.getrandbits(32), writer, next_numbers(told))
    )
    child.start()
    writer.close()
    # 0: killed while it opens the logs.
    wanted = rng.choice((0, 1, rng.randint(1, ACKNOWLEDGED_MAX))) * ACKNOWLEDGED_BYTES
    heard = b""
    with reader:
        while len(heard) < wanted:
            more = os.read(reader.fileno(), 1 << 16)
            assert more, "the child has ended by itself"
            heard += more
        for _ in range(rng.randrange(30_000)):  # up to about a millisecond
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
