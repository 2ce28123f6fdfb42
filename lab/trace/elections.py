"""Records elections for timelines. The recorder is attached to the metadata only in a broker with a control port."""

from __future__ import annotations

from broker.clock import Clock
from broker.injection.happenings import Happening, Happenings
from broker.metadata import ClusterMetadata
from broker.metadata.listeners import MetadataListener
from broker.metadata.values import NO_LEADER, PartitionState, Topic


class ElectionWatcher(MetadataListener):
    """A watcher of the metadata that records each new leader epoch of a partition as a `Happening`."""

    def __init__(self, metadata: ClusterMetadata, happenings: Happenings, clock: Clock) -> None:
        self._happenings = happenings
        self._clock = clock
        self._epochs: dict[tuple[str, int], int] = {}
        for topic in metadata.topics.values():
            self.on_topic_created(topic)
        metadata.subscribe(self)

    def on_topic_created(self, topic: Topic) -> None:
        self._epochs |= {(topic.name, state.index): state.leader_epoch for state in topic.partitions}

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        self.on_topic_created(topic)

    def on_topic_deleted(self, topic: Topic) -> None:
        for state in topic.partitions:
            self._epochs.pop((topic.name, state.index), None)

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        place = (topic.name, partition.index)
        if self._epochs.get(place) == partition.leader_epoch:
            return  # only the ISR has changed
        self._epochs[place] = partition.leader_epoch
        name = f"{topic.name}-{partition.index}"
        leads = "no replica in sync runs: no node leads"
        if partition.leader != NO_LEADER:
            leads = f"node {partition.leader} leads"
        text = f"{leads} {name} in leader epoch {partition.leader_epoch}"
        happening = Happening(
            self._clock.now_ms(), "election", partition.leader, text, partitions=frozenset({place})
        )
        self._happenings.note(happening)
