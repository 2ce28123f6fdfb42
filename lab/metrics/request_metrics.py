"""Counts requests by API, version and error, with their durations and sizes.

Counting begins at the first scrape. Until then no request is examined. Kafka has the same metrics in
``kafka.network.RequestMetrics`` and ``kafka.server.BrokerTopicMetrics``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from functools import cache
from typing import Any, Final

from broker.clock import stopwatch_us
from broker.net.calls import Call, CallEvent, CallInterceptors
from protocol.batch import CorruptBatch, batches
from protocol.errors import ErrorCode
from protocol.slotted import slotted
from protocol.versions import message_name

PRODUCE: Final = 0
FETCH: Final = 1
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
RENEW: Final = 4
"""The highest AcknowledgeType."""
TIMES_KEPT: Final = 1024
"""Number of the newest durations per API that are kept for the quantiles."""
TOPICS_MAX: Final = 1000
"""Largest number of topics counted by name. Requests for further topics are counted under an empty name."""
FENCED: Final = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced})

Names = Callable[[Any], str | None]


@slotted
class Times:
    """Durations of the newest requests of an API, in microseconds, split as in Kafka."""

    count: int = 0
    total_us: deque[int] = field(default_factory=lambda: deque(maxlen=TIMES_KEPT))
    local_us: deque[int] = field(default_factory=lambda: deque(maxlen=TIMES_KEPT))
    """Time until the handler responded, or began to wait."""
    remote_us: deque[int] = field(default_factory=lambda: deque(maxlen=TIMES_KEPT))
    """Time that the handler waited: for replicas, for data, for other members of a group."""


@slotted
class TopicCounts:
    """Counters of one topic on one node, those of ``kafka.server:type=BrokerTopicMetrics``."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    failed_fetch_requests: int = 0
    share_fetch_requests: int = 0
    failed_share_fetch_requests: int = 0
    share_acknowledge_requests: int = 0
    failed_share_acknowledge_requests: int = 0


class RequestMetrics:
    """The counters of all nodes. No call is intercepted before ``start``.

    Keys begin with the node id. APIs have Kafka's names.
    """

    def __init__(
        self, calls: CallInterceptors, names: Names, measure_us: Callable[[], int] = stopwatch_us
    ) -> None:
        """``names`` returns a topic's name by its id."""
        self._running = False
        self.requests: Counter[tuple[int, str, int]] = Counter()
        """Number of requests by node id, API and version."""
        self.errors: Counter[tuple[int, str, int]] = Counter()
        """Number of error codes by node id and API. A response counts once for each of its codes, also ``NONE``, as in
        Kafka."""
        self.fenced: Counter[tuple[int, int]] = Counter()
        """Number of responses with an error that fences the producer, by node id and error code."""
        self.acknowledged: Counter[tuple[int, int]] = Counter()
        """Number of records in acknowledgements of share groups, by node id and AcknowledgeType, also of refused ones, as
        in Kafka."""
        self.delivered: Counter[tuple[int, str]] = Counter()
        """Number of records that share groups have acquired, by node id and topic."""
        self.times: dict[tuple[int, str], Times] = {}
        self.topics: dict[tuple[int, str], TopicCounts] = {}
        self._calls = calls
        self._names = names
        self.measure_us = measure_us

    def start(self) -> None:
        """Start counting. A second call does nothing."""
        if not self._running:
            self._running = True
            self._calls.add(self, first=True)

    # -- called by connections (`broker.net.calls.CallInterceptor`) ----------------------------------------------

    def wants(self, api_key: int) -> bool:
        return True

    def arrived(self, call: Call) -> bool:
        call.watch(_Measured(self, self.measure_us()).happened)
        return True

    def answering(self, call: Call) -> bool:
        return True

    # -- counting -----------------------------------------------------------------------------------------------

    def count(self, call: Call, local_us: int, total_us: int) -> None:
        """Count one request with its response, and record its durations."""
        node_id, api = call.node.node_id, call.route.api
        name = _kafkas_name(api.name)
        self.requests[node_id, name, call.route.version] += 1
        times = self.times.setdefault((node_id, name), Times())
        times.count += 1
        times.total_us.append(total_us)
        times.local_us.append(local_us)
        times.remote_us.append(total_us - local_us)
        for code in call.error_codes():
            self.errors[node_id, name, code] += 1
            if code in FENCED:
                self.fenced[node_id, code] += 1
        if api.key == PRODUCE:
            self._count_produce(node_id, call)
        elif api.key == FETCH:
            self._count_fetch(node_id, call)
        elif api.key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            self._count_share(node_id, call)

    def _of_topic(self, node_id: int, topic: Any) -> TopicCounts:
        name = getattr(topic, "name", None) or getattr(topic, "topic", None)
        name = name or self._names(topic.topic_id) or ""
        found = self.topics.get((node_id, name))
        if found is None:
            if len(self.topics) >= TOPICS_MAX:
                name = ""
            found = self.topics.setdefault((node_id, name), TopicCounts())
        return found

    def _count_produce(self, node_id: int, call: Call) -> None:
        codes = dict(_produce_codes(call.response))
        for topic in call.request.topic_data:
            counts = self._of_topic(node_id, topic)
            counts.produce_requests += 1
            failed = False
            for each in topic.partition_data:
                if codes.get((topic.name, topic.topic_id, each.index), 0):
                    failed = True
                elif each.records is not None:
                    counts.bytes_in += len(each.records)
                    counts.messages_in += records_in(each.records)
            counts.failed_produce_requests += failed

    def _count_fetch(self, node_id: int, call: Call) -> None:
        for topic in getattr(call.response, "responses", ()):
            counts = self._of_topic(node_id, topic)
            counts.fetch_requests += 1
            counts.bytes_out += sum(len(each.records or b"") for each in topic.partitions)
            counts.failed_fetch_requests += any(each.error_code for each in topic.partitions)

    def _count_share(self, node_id: int, call: Call) -> None:
        """Count a ShareFetch, with the acknowledgements in it, or a ShareAcknowledge."""
        is_fetch = call.route.api.key == SHARE_FETCH
        for topic in call.request.topics or ():
            for partition in topic.partitions:
                for batch in partition.acknowledgement_batches:
                    types = batch.acknowledge_types
                    size = batch.last_offset - batch.first_offset + 1 if len(types) == 1 else 1
                    for kind in types:
                        if 0 <= kind <= RENEW and size > 0:
                            self.acknowledged[node_id, kind] += size
        for topic in getattr(call.response, "responses", ()):
            counts = self._of_topic(node_id, topic)
            failed = any(each.error_code for each in topic.partitions)
            if not is_fetch:
                counts.share_acknowledge_requests += 1
                counts.failed_share_acknowledge_requests += failed
                continue
            counts.share_fetch_requests += 1
            counts.failed_share_fetch_requests += failed
            counts.bytes_out += sum(len(each.records or b"") for each in topic.partitions)
            self.delivered[node_id, self._names(topic.topic_id) or ""] += sum(
                acquired.last_offset - acquired.first_offset + 1
                for each in topic.partitions
                for acquired in each.acquired_records
            )


@slotted
class _Measured:
    """The measurement of one call, from its arrival to its response."""

    metrics: RequestMetrics
    began_us: int
    delayed_us: int | None = None

    def happened(self, call: Call, event: CallEvent) -> None:
        now_us = self.metrics.measure_us()
        if event is CallEvent.DELAYED:
            self.delayed_us = now_us
        elif event not in (CallEvent.HELD, CallEvent.HANDLED_ALONE):
            until_us = now_us if self.delayed_us is None else self.delayed_us
            self.metrics.count(call, until_us - self.began_us, now_us - self.began_us)


def records_in(records: bytes | memoryview) -> int:
    """Number of records, summed from the batch headers up to the first bytes that are not a batch.

    The bytes may be invalid: with acks=0 there is no response that says whether the leader accepted them.
    """
    found = 0
    with suppress(CorruptBatch):
        for batch in batches(records):
            found += batch.record_count
    return found


def _produce_codes(response: Any) -> Iterator[tuple[tuple[Any, Any, int], int]]:
    """The error code of each partition of a Produce; nothing if there is no response (acks=0)."""
    for topic in getattr(response, "responses", ()):
        for each in topic.partition_responses:
            yield (topic.name, topic.topic_id, each.index), each.error_code


_kafkas_name = cache(message_name)
