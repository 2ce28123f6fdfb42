"""Gives the partitions of a node their leader and follower roles, and passes link changes on to the roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain, Timer
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.metadata.partition_change import RECOVERING
from broker.metadata.values import NO_LEADER
from broker.replicas.replication.context import Peers, ReplicationContext, Truncation
from broker.replicas.replication.leading import Leading
from broker.replicas.replication.replica_fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata
    from broker.replicas.partition import Partition

log_events = get_logger()


class Roles:
    """Leader and follower roles of one node's partitions. Partitions with a single replica have neither."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        injection: FaultInjection,
        peers: Peers,
        is_here: Callable[[], bool],
        truncation: Truncation,
    ) -> None:
        self.node_id = node_id
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._injection = injection
        self._peers = peers
        self._context = ReplicationContext(
            node_id,
            clock,
            injection,
            peers,
            is_here,
            lambda topic, index, epoch, isr: metadata.replication_control.alter_partition(
                topic, index, epoch, isr
            ),
            self._broker_epoch,
            self._is_led_uncleanly,
            lambda: config.replica_lag_time_max_ms,
            config.replica_fetch_wait_max_ms,
            self._watch_lag,
            truncation,
        )
        self._fetchers: dict[Partition, ReplicaFetcher] = {}
        self._leading: dict[Partition, Leading] = {}
        self._lagging: dict[Partition, None] = {}
        """Partitions led by this node that may have a follower that is behind."""
        self._lag_timer: Timer | None = None
        self._ended = False
        injection.links.subscribe(self._links_changed)

    # -- roles --------------------------------------------------------------------------------------------------

    def assume(self, partition: Partition, *, at_once: bool) -> None:
        """Start leading or following according to the partition's attributes.

        ``at_once``: all nodes already have this metadata, so a follower may fetch in this turn of the event loop.
        """
        if self._ended:
            return
        if partition.offline is not None:
            self.release(partition)
            return
        if partition.leader_id == self.node_id:
            self._stop_following(partition)
            if partition.leading is not None or len(partition.replicas) > 1:
                self._lead(partition)
            else:
                partition.advance_high_watermark()  # it did not move while there was no leader
            return
        self._stop_leading(partition)
        fetcher = self._fetchers.get(partition)
        if fetcher is not None and fetcher.leader_epoch == partition.leader_epoch:
            return
        self._stop_following(partition)
        if partition.leader_id != NO_LEADER and self.node_id in partition.replicas:
            fetcher = ReplicaFetcher(partition, self._context, partition.leader_id, partition.leader_epoch)
            partition.following = self._fetchers[partition] = fetcher
            if at_once:
                fetcher.pull()
            else:
                fetcher.start_soon()

    def _lead(self, partition: Partition) -> None:
        leading = self._leading.get(partition)
        if leading is None:
            leading = partition.leading = self._leading[partition] = Leading(partition, self._context)
        if leading.epoch < partition.leader_epoch:
            self._log_if_unclean(partition)
        leading.assume()
        self._open_on_replicas(partition)

    def _is_led_uncleanly(self, partition: Partition) -> bool:
        topic = self._metadata.topic(partition.topic)
        state = topic.partition(partition.index) if topic is not None else None
        return state is not None and state.leader_recovery_state == RECOVERING

    def _log_if_unclean(self, partition: Partition) -> None:
        if self._is_led_uncleanly(partition):
            log_events.warning(
                "unclean leader election: committed records may be lost",
                node_id=self.node_id,
                topic=partition.topic,
                partition=partition.index,
                leader_epoch=partition.leader_epoch,
                log_end_offset=partition.log_end_offset,
                high_watermark=partition.high_watermark,
            )

    def _open_on_replicas(self, partition: Partition) -> None:
        """Open the partition on the nodes of the other replicas, which makes these nodes follow."""
        for node_id in partition.replicas:
            if node_id != self.node_id and (peer := self._peers(node_id)) is not None:
                peer.get(partition.topic, partition.index)

    def release(self, partition: Partition) -> None:
        """Stop leading and following a partition that is deleted, moved to other nodes or offline."""
        self._stop_leading(partition)
        self._stop_following(partition)

    def _stop_leading(self, partition: Partition) -> None:
        leading = self._leading.pop(partition, None)
        if leading is not None:
            partition.leading = None
            self._lagging.pop(partition, None)
            leading.end()

    def _stop_following(self, partition: Partition) -> None:
        fetcher = self._fetchers.pop(partition, None)
        if fetcher is not None:
            partition.following = None
            fetcher.end()

    def end(self) -> None:
        """Stop all replication because the node stops or is killed. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        self._injection.links.unsubscribe(self._links_changed)
        for partition in (*self._leading, *self._fetchers):
            self.release(partition)
        if self._lag_timer is not None:
            self._lag_timer.cancel()

    def look_again(self) -> None:
        """Open the partitions that this node leads on the other running nodes, and start all fetchers. Called when this
        node begins to serve.
        """
        for partition in tuple(self._leading):
            self._open_on_replicas(partition)
        for fetcher in tuple(self._fetchers.values()):
            fetcher.pull()

    # -- brokers, links, lag ------------------------------------------------------------------------------------

    def _broker_epoch(self, node_id: int) -> int | None:
        broker = self._metadata.brokers.get(node_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return None
        return broker.epoch

    def _links_changed(self) -> None:
        links, me = self._injection.links, self.node_id

        def is_lost(node_id: int) -> bool:
            return links.is_cut(me, node_id) or links.is_cut(node_id, me)

        for partition, leading in tuple(self._leading.items()):
            topic, index = partition.topic, partition.index
            leading.forget_waiting(lambda each: is_lost(each) or links.is_paused(each, topic, index))  # noqa: B023
        for fetcher in tuple(self._fetchers.values()):
            fetcher.pull()

    def _watch_lag(self, partition: Partition) -> None:
        self._lagging[partition] = None
        if self._lag_timer is None and not self._ended:
            # Kafka's interval: a lagging follower leaves the ISR after 1 to 1.5 times replica.lag.time.max.ms.
            interval_ms = self._config.replica_lag_time_max_ms / 2
            self._lag_timer = self._clock.call_later_ms(interval_ms, self._look_at_lag, Domain.REPLICATION)

    def _look_at_lag(self) -> None:
        self._lag_timer = None
        lagging, self._lagging = self._lagging, {}
        for partition in lagging:
            leading = self._leading.get(partition)
            if leading is not None and partition.offline is None and leading.shrink():
                self._watch_lag(partition)
