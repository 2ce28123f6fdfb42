"""The child process of the crash test: it appends to logs and reports each append through a pipe until it is killed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from tests.storage.load import Flush, Load, open_logs

STEPS_PER_FLUSH = 25
STEPS_MAX = 5_000
"""Limit for a child that is never killed because of an error in the test."""


def write_until_killed(root: Path, seed: int, pipe: Connection, numbers: dict[tuple[int, int], int]) -> None:
    """Append forever, while a thread syncs and writes checkpoints."""
    logs = open_logs(root)
    load = Load(logs, Random(seed), lambda one: os.write(pipe.fileno(), one.encode()), dict(numbers))
    thread = ThreadPoolExecutor(1)
    flush = Flush(root, logs)
    running = thread.submit(flush.run)
    for step in range(STEPS_MAX):
        load.step()
        if step % STEPS_PER_FLUSH == 0 and running.done():
            running.result()
            flush.finish()
            flush = Flush(root, logs)
            running = thread.submit(flush.run)
