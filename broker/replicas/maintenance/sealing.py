"""Completes and syncs the files of all logs of a node at a clean stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker.loop.life import NodeLife
from broker.replicas.partition import Partition
from storage.files import StorageError

SYNCS_AT_ONCE: Final = 16
"""Maximum number of threads that sync logs at the same time."""


async def seal_all(partitions: Iterable[Partition], life: NodeLife) -> None:
    """Complete the files of all logs and sync them, many at a time: the disk combines concurrent syncs into one flush."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="log-sync") as threads:
        under_way = []
        for partition in partitions:
            if partition.offline is None:
                try:
                    under_way.append((partition, loop.run_in_executor(threads, partition.log.seal())))
                except StorageError as error:
                    partition.go_offline(error)
        for partition, sealed in under_way:
            try:
                await sealed
            except StorageError as error:
                if life.alive:
                    partition.go_offline(error)
            else:
                partition.log.note_sealed()
