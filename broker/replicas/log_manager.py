"""The logs of one node's log directory, as Kafka's ``LogManager``: opened, recovered, truncated, deleted.

A log that cannot be opened takes nothing else with it: its partition is offline, in one line that names the file.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.logging import get_logger
from broker.replicas.maintenance.checkpoints import Checkpoints, InBackground
from broker.replicas.maintenance.removal import remove_retired
from broker.replicas.stray_partitions import say_damage, set_aside_foreign
from protocol.named_tuple import NamedTuple
from storage.config import LogConfig
from storage.directory import LogDirectory, PartitionKey
from storage.files import StorageError
from storage.log import Log
from storage.recovery import OpenOptions, open_log, truncate, truncate_fully_and_start_at

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.values import Topic
    from broker.replicas.partition import Partition

log_events = get_logger()


class OpenedLog(NamedTuple):
    log: Log
    offline: str | None
    """Why its files cannot be used; the log then serves nothing."""


class LogManager:
    def __init__(
        self,
        directory: LogDirectory,
        config: BrokerConfig,
        clock: Clock,
        rng: random.Random,
        in_background: InBackground,
    ) -> None:
        self.checkpoints = Checkpoints(directory, in_background)
        self.was_clean = directory.was_clean
        """The last stop was a clean one: the logs need no recovery."""
        self._directory = directory
        self._config = config
        self._clock = clock
        self._rng = rng
        self._in_background = in_background
        self._latest: tuple[dict[str, str], LogConfig, LogConfig] = (
            {},
            config.log_defaults,
            config.log_defaults,
        )
        """Settings of a topic, the broker's, and what they come to. Partitions of a topic are mostly opened one by one."""

    def log_config(self, topic: Topic) -> LogConfig:
        """The topic's own settings above the broker's."""
        if not topic.configs:
            return self._config.log_defaults
        if (topic.configs, self._config.log_defaults) != self._latest[:2]:
            own, defaults = dict(topic.configs), self._config.log_defaults
            self._latest = own, defaults, LogConfig.from_properties(own, defaults)
        return self._latest[2]

    def open(self, topic: Topic, index: int, high_watermark: int | None) -> OpenedLog:
        """Open a partition's log, with a recovery where the last stop was not clean.

        ``high_watermark`` is what was checkpointed of a partition with several replicas, else None.
        """
        assert self._directory.is_open, "a log is opened under the lock of its directory"
        key = (topic.name, index)
        path = self._directory.partition_path(*key)
        try:
            set_aside_foreign(path, topic.topic_id)
            if not path.is_dir():
                # Rows that remain are of an earlier topic of this name, which was deleted while this node was down.
                self.checkpoints.forget(key)
            recovered = open_log(path, self._options(topic, key, high_watermark))
            say_damage(key, recovered)
            if recovered.doomed:
                self._in_background(partial(remove_retired, recovered.doomed))
            log, offline = recovered.log, None
        except StorageError as error:
            log_events.error(
                "partition offline", topic=key[0], partition=key[1], file=error.path, reason=str(error)
            )
            log, offline = Log(path, topic.topic_id, self.log_config(topic)), str(error)
        log.on_snapshot_failed = _say_snapshot_failed
        return OpenedLog(log, offline)

    def _options(self, topic: Topic, key: PartitionKey, high_watermark: int | None) -> OpenOptions:
        return OpenOptions(
            topic_id=topic.topic_id,
            config=self.log_config(topic),
            # Idle producers are what an opened log looks for with it.
            now_ms=self._clock.now_ms(Domain.PRODUCERS),
            clean=self.was_clean,
            recovery_point=self.checkpoints.recovery_point(key),
            log_start_offset=self.checkpoints.log_start(key),
            high_watermark=high_watermark,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            jitter=lambda bound_ms: self._rng.randrange(bound_ms) if bound_ms > 0 else 0,
        )

    def truncate(self, partition: Partition, offset: int) -> None:
        """Cut off what a follower's log has from ``offset`` on."""
        options = OpenOptions(
            topic_id=partition.topic_id,
            config=partition.log.config,
            now_ms=self._clock.now_ms(Domain.PRODUCERS),
            clean=True,
            high_watermark=partition.high_watermark,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
        )
        truncate(partition.log, offset, options)

    def truncate_fully_and_start_at(self, partition: Partition, offset: int) -> None:
        """Drop all that a follower's log has; it goes on at ``offset``, where the leader's log starts."""
        doomed = truncate_fully_and_start_at(partition.log, offset, self._clock.now_ms())
        if doomed:
            self._in_background(partial(remove_retired, doomed))

    def delete(self, topic: Topic, index: int) -> None:
        """Free the name of a partition's folder at once; its files go after ``file.delete.delay.ms``."""
        self.checkpoints.forget((topic.name, index))
        try:
            doomed = self._directory.mark_for_deletion(topic.name, index)
        except StorageError as failed:
            # The topic is gone all the same; a later one of its name finds whose folder this was.
            log_events.warning("folder of a deleted topic stays", file=failed.path, reason=str(failed))
            return
        if doomed is not None:
            remove = partial(self._in_background, partial(self._directory.remove, doomed))
            delay_ms = self.log_config(topic).file_delete_delay_ms
            self._clock.call_later_ms(delay_ms, remove, Domain.RETENTION)

    def delete_marked(self) -> None:
        """What was marked for deletion before the last stop goes now."""
        for path in self._directory.doomed_directories():
            self._in_background(partial(self._directory.remove, path))


def _say_snapshot_failed(error: StorageError) -> None:
    log_events.warning("snapshot of the producers not written", file=error.path, reason=str(error))
