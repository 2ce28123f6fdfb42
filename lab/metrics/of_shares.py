"""Metric families of share groups (KIP-932): their states, and the share partitions that leaders have in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from lab.metrics.families import Family, Row, counter, gauge
from lab.views.forms import GroupSummary

if TYPE_CHECKING:
    from broker.share.manager import ManagedSharePartition

SHARE_PARTITIONS_MAX: Final = 2000
"""Largest number of share partitions with samples."""
_BY_PARTITION: Final = ("broker_id", "group", "topic", "partition")
_OF_KAFKA: Final = "kafka_server_sharepartitionmetrics_"


def share_group_families(groups: Iterable[GroupSummary]) -> Iterator[Family]:
    """The number of share groups by state, and the start offset and the lag of their partitions."""
    states: Counter[tuple[object, ...]] = Counter()
    starts: list[Row] = []
    lags: list[Row] = []
    for group in groups:
        if group.type == "share":
            states[group.coordinator, group.state] += 1
        for each in group.shares:
            labels = (group.group, each.topic, each.partition)
            if each.start_offset is not None:
                starts.append((labels, each.start_offset))
            if each.lag is not None:
                lags.append((labels, each.lag))
    yield gauge(
        "kafka_server_group_coordinator_metrics_share_group_count", ("broker_id", "state"), states.items()
    )
    yield gauge("odradek_share_partition_start_offset", _BY_PARTITION[1:], starts)
    yield gauge("odradek_share_partition_lag", _BY_PARTITION[1:], lags)


class SharePartitionFamilies:
    """The samples of the share partitions that were added."""

    def __init__(self) -> None:
        self._records: list[Row] = []
        self._in_flight: list[Row] = []
        self._batches: list[Row] = []
        self._timeouts: list[Row] = []
        self._dead_letters: Counter[tuple[object, ...]] = Counter()

    def add(self, broker_id: int, managed: ManagedSharePartition) -> None:
        from lab.views.shares import records_by_state  # imported with the first share group

        state = managed.state
        place = (broker_id, managed.key.group_id, managed.partition.topic, managed.key.partition)
        self._records += [((*place, name), count) for name, count in records_by_state(managed).items()]
        self._in_flight.append((place, state.in_flight_count))
        self._batches.append((place, len(state.batches)))
        self._timeouts.append((place, state.lock_timeouts))
        self._dead_letters[broker_id, managed.key.group_id, "written"] += managed.dead_letters
        self._dead_letters[broker_id, managed.key.group_id, "lost"] += managed.dead_letters_lost

    def families(self) -> Iterator[Family]:
        yield gauge("odradek_share_partition_records", (*_BY_PARTITION, "state"), self._records)
        yield gauge(f"{_OF_KAFKA}inflightmessagecount", _BY_PARTITION, self._in_flight)
        yield gauge(f"{_OF_KAFKA}inflightbatchcount", _BY_PARTITION, self._batches)
        yield counter(f"{_OF_KAFKA}acquisitionlocktimeout", _BY_PARTITION, self._timeouts)
        for name, result in (
            ("kafka_server_sharegroupmetrics_deadletterqueuerecordcount", "written"),
            ("odradek_share_dead_letters_lost", "lost"),
        ):
            rows = [
                (labels[:2], count) for labels, count in self._dead_letters.items() if labels[2] == result
            ]
            yield counter(name, ("broker_id", "group"), rows)
