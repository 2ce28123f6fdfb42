"""Opens, recovers, truncates and deletes the logs of one node's log directory, as Kafka's ``LogManager``.

If a log cannot be opened, only its partition goes offline, and a line in the broker's log names the file.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.logging import get_logger
from broker.replicas.maintenance.checkpoints import Checkpoints, InBackground
from broker.replicas.maintenance.removal import remove_retired
from broker.replicas.stray_partitions import log_damage, set_aside_foreign
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
    """Reason why the files cannot be used: the partition is offline, and ``log`` must not be read or written. None
    if the partition is online."""


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
        """Whether the node's last stop was clean, so that the logs need no recovery."""
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
        """Cache of `log_config` for one topic: the topic's own settings, the broker's settings, and both combined.

        One entry is enough, because the partitions of a topic are mostly opened one after the other.
        """

    def log_config(self, topic: Topic) -> LogConfig:
        """Settings for the logs of a topic's partitions: the topic's own settings override the broker's."""
        if not topic.configs:
            return self._config.log_defaults
        if (topic.configs, self._config.log_defaults) != self._latest[:2]:
            own, defaults = dict(topic.configs), self._config.log_defaults
            self._latest = own, defaults, LogConfig.from_properties(own, defaults)
        return self._latest[2]

    def open(self, topic: Topic, index: int, high_watermark: int | None) -> OpenedLog:
        """Open a partition's log, and recover it if the last stop was not clean.

        ``high_watermark`` is the checkpointed high watermark of a partition with several replicas; None if there is one
        replica. If the files cannot be used, no error is raised: the result's ``offline`` contains the reason.
        """
        assert self._directory.is_open, "a log is opened under the lock of its directory"
        key = (topic.name, index)
        path = self._directory.partition_path(*key)
        try:
            set_aside_foreign(path, topic.topic_id)
            if not path.is_dir():
                # Checkpoint rows of this name belong to an earlier topic that was deleted while this node was down.
                self.checkpoints.forget(key)
            recovered = open_log(path, self._options(topic, key, high_watermark))
            log_damage(key, recovered)
            if recovered.doomed:
                self._in_background(partial(remove_retired, recovered.doomed))
            log, offline = recovered.log, None
        except StorageError as error:
            log_events.error(
                "partition offline", topic=key[0], partition=key[1], file=error.path, reason=str(error)
            )
            log, offline = Log(path, topic.topic_id, self.log_config(topic)), str(error)
        log.on_snapshot_failed = _log_snapshot_failed
        return OpenedLog(log, offline)

    def _options(self, topic: Topic, key: PartitionKey, high_watermark: int | None) -> OpenOptions:
        return OpenOptions(
            topic_id=topic.topic_id,
            config=self.log_config(topic),
            # Loading the producer state drops the producers that have expired at this time.
            now_ms=self._clock.now_ms(Domain.PRODUCERS),
            clean=self.was_clean,
            recovery_point=self.checkpoints.recovery_point(key),
            log_start_offset=self.checkpoints.log_start(key),
            high_watermark=high_watermark,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            jitter=lambda bound_ms: self._rng.randrange(bound_ms) if bound_ms > 0 else 0,
        )

    def truncate(self, partition: Partition, offset: int) -> None:
        """Truncate a follower's log to ``offset``."""
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
        """Delete all batches of a follower's log, and start it again at ``offset``, the leader's log start."""
        doomed = truncate_fully_and_start_at(partition.log, offset, self._clock.now_ms())
        if doomed:
            self._in_background(partial(remove_retired, doomed))

    def delete(self, topic: Topic, index: int) -> None:
        """Rename a partition's directory, so that its name is free; delete the files after ``file.delete.delay.ms``."""
        self.checkpoints.forget((topic.name, index))
        try:
            doomed = self._directory.mark_for_deletion(topic.name, index)
        except StorageError as failed:
            # The topic is deleted nonetheless. A later topic of this name recognizes the directory by its topic id.
            log_events.warning(
                "directory of a deleted topic not removed", file=failed.path, reason=str(failed)
            )
            return
        if doomed is not None:
            remove = partial(self._in_background, partial(self._directory.remove, doomed))
            delay_ms = self.log_config(topic).file_delete_delay_ms
            self._clock.call_later_ms(delay_ms, remove, Domain.RETENTION)

    def delete_marked(self) -> None:
        """Delete the directories that were marked for deletion before the last stop."""
        for path in self._directory.doomed_directories():
            self._in_background(partial(self._directory.remove, path))


def _log_snapshot_failed(error: StorageError) -> None:
    log_events.warning("producer snapshot not written", file=error.path, reason=str(error))
