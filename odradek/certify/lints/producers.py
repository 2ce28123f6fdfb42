"""Lints on the producers of a job, and on how it handles fatal errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.certify.exchanges import ENDS, Exchange, batches
from odradek.certify.lints.evidence import Evidence, Lint, seen_at
from odradek.certify.lints.processes import GOES_ON, LIFE, ConnectionMap

_SPARK: Final = "spark-kafka-"
_STREAMS: Final = "-StreamThread-"
FATAL: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
_REFUSED: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "INVALID_RECORD", *FATAL})
"""Errors that reject a batch and are not retriable."""
_SINK: Final = "odradek-spark"
"""Client id prefix of our Spark sink, whose driver ends the transactions of its tasks and fences old ones by design."""
_OF_PRODUCER: Final = frozenset(
    {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "EndTxn"}
)


def weak_producer(evidence: Evidence) -> Iterator[Lint]:
    for exchange, topic, batch in _outside(evidence):
        acks = exchange.request.get("acks")
        if batch.get("producer_id", -1) < 0 or acks != -1:
            weak = "without idempotence" if batch.get("producer_id", -1) < 0 else f"with acks={acks}"
            beside = " beside a transactional one" if evidence.transactional_ids else ""
            yield seen_at(
                exchange,
                "weak-producer",
                f"a producer {weak} writes {topic}{beside}: its retries can duplicate records, or records can be lost. "
                "Use one transactional producer",
            )


def second_producer(evidence: Evidence) -> Iterator[Lint]:
    if not evidence.transactional_ids:
        return
    for exchange, topic, batch in _outside(evidence):
        if batch.get("producer_id", -1) >= 0 and exchange.request.get("acks") == -1:
            yield seen_at(
                exchange,
                "second-producer",
                f"a second producer writes {topic} outside the transaction: its records stay when the transaction aborts",
            )


def _outside(evidence: Evidence) -> Iterator[tuple[Exchange, str, Mapping[str, Any]]]:
    for exchange in evidence.exchanges:
        if exchange.api == "Produce" and not exchange.transactional_id:
            for topic, _, batch in batches(exchange):
                if topic in evidence.outputs:
                    yield exchange, topic, batch


def known_sinks(evidence: Evidence) -> Iterator[Lint]:
    if evidence.transactional_ids:
        return
    for exchange, topic, _ in _outside(evidence):
        if _STREAMS in exchange.client_id:
            yield seen_at(
                exchange,
                "streams-at-least-once",
                f"Kafka Streams writes {topic} with processing.guarantee=at_least_once. Set exactly_once_v2",
            )
    if any(_SPARK in (each.group or "") + each.client_id for each in evidence.exchanges):
        for exchange, topic, _ in _outside(evidence):
            yield seen_at(
                exchange,
                "spark-sink",
                f"Spark's own Kafka sink writes {topic}: a task or batch that runs again writes its records again",
            )


def shared_id(evidence: Evidence) -> Iterator[Lint]:
    """Yield a lint if two live producers use one transactional id: the second started while the first still runs.

    Either the first producer sends another request and gets a fencing error, or there are two live consumers whose offsets
    go into the transactions of the id. Neither happens after a kill, and a process that makes a new producer has one
    consumer.
    """
    connections = ConnectionMap()
    lives: dict[str, _ProducerConnections] = {}
    for exchange in evidence.exchanges:
        connections.see(exchange)
        transactional_id = exchange.transactional_id
        if transactional_id and not exchange.client_id.startswith(_SINK):
            lives.setdefault(transactional_id, _ProducerConnections()).see(
                exchange, connections.linked_to(transactional_id)
            )
        for name, each in lives.items():
            if each.are_two_at(exchange):
                yield seen_at(
                    exchange,
                    "shared-id",
                    f"two instances use the transactional.id {name} and fence each other. "
                    "Give each instance its own id, the same at each start",
                )


class _ProducerConnections:
    """The connections of one transactional id: those of its latest producer, and those of earlier producers."""

    def __init__(self) -> None:
        self._before: set[str] = set()
        self._now: set[str] = set()
        self._consumers: frozenset[str] = frozenset()
        self._consumers_before: frozenset[str] = frozenset()
        self._asked: Counter[str] = Counter()

    def see(self, exchange: Exchange, consumers: frozenset[str]) -> None:
        self._consumers = consumers
        if exchange.api not in _OF_PRODUCER or exchange.peer in self._before:
            return
        # A client that raises its own epoch (KIP-360) sends its producer id in InitProducerId.
        is_start = exchange.api == "InitProducerId" and exchange.request.get("producer_id", -1) < 0
        if is_start and self._now and exchange.peer not in self._now:
            self._before |= self._now
            self._now = set()
            self._consumers_before = consumers
            self._asked.clear()
        self._now.add(exchange.peer)

    def are_two_at(self, exchange: Exchange) -> bool:
        peer = exchange.peer
        if (
            exchange.api in LIFE
            and self._consumers - self._consumers_before
            and peer in self._consumers_before
        ):
            self._asked[peer] += 1
            return self._asked[peer] == GOES_ON
        return peer in self._before and exchange.api in _OF_PRODUCER and bool(FATAL & set(exchange.errors))


def used_on(evidence: Evidence) -> Iterator[Lint]:
    """Yield fatal producer errors after which the job continues to read, but creates no new producer."""
    connections = ConnectionMap()
    dead: dict[str, tuple[Exchange, frozenset[str]]] = {}
    later: Counter[str] = Counter()
    for exchange in evidence.exchanges:
        transactional_id = exchange.transactional_id
        connections.see(exchange)
        if exchange.api == "InitProducerId" and transactional_id and not FATAL & set(exchange.errors):
            dead.pop(transactional_id, None)
        elif transactional_id and transactional_id not in dead and FATAL & set(exchange.errors):
            dead[transactional_id] = exchange, connections.readers_of(transactional_id)
            later[transactional_id] = 0
        elif exchange.api in LIFE:
            later.update(name for name, (_, readers) in dead.items() if exchange.peer in readers)
    for transactional_id, (exchange, _) in dead.items():
        if later[transactional_id] >= GOES_ON:
            yield seen_at(
                exchange,
                "fatal-error-swallowed",
                f"after {', '.join(dict.fromkeys(exchange.errors))} the job continues without making a new producer for "
                f"{transactional_id}, and can commit nothing more. Close the producer, then exit or make a new one",
            )


def unawaited(evidence: Evidence) -> Iterator[Lint]:
    """Yield rejected batches whose transaction the job commits.

    The Java client and librdkafka prevent such a commit, aiokafka does not.
    """
    refused: dict[str, Exchange] = {}
    for exchange in evidence.exchanges:
        transactional_id = exchange.transactional_id
        if transactional_id and exchange.api == "Produce" and _REFUSED & set(exchange.errors):
            refused.setdefault(transactional_id, exchange)
        elif transactional_id and exchange.api in ENDS and exchange.succeeded:
            first = refused.pop(transactional_id, None)
            if first is not None and exchange.request.get("committed"):
                errors = ", ".join(dict.fromkeys(first.errors))
                yield seen_at(
                    first,
                    "send-not-awaited",
                    f"Produce was rejected with {errors}, and the transaction was committed nevertheless: await each "
                    "send before the commit (aiokafka: the future that send returns)",
                )


def short_time_out(evidence: Evidence) -> Iterator[Lint]:
    """Yield transactions that take over half of their timeout in a run without faults: slower ones are aborted."""
    if not evidence.has_times:
        return
    timeouts_ms: dict[str, int] = {}
    begun_us: dict[str, int] = {}
    for exchange in evidence.exchanges:
        transactional_id = exchange.transactional_id
        if transactional_id is None:
            continue
        if exchange.api == "InitProducerId":
            timeouts_ms[transactional_id] = exchange.request.get("transaction_timeout_ms", 0)
        elif exchange.api == "EndTxn":
            took_ms = (exchange.arrived_us - begun_us.pop(transactional_id, exchange.arrived_us)) / 1000
            timeout_ms = timeouts_ms.get(transactional_id, 0)
            if 0 < timeout_ms < 2 * took_ms:
                yield seen_at(
                    exchange,
                    "short-time-out",
                    f"a transaction of {transactional_id} took {took_ms:.0f} ms of its transaction.timeout.ms={timeout_ms}: "
                    "the coordinator aborts a transaction that takes longer",
                )
        elif exchange.api in ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn"):
            begun_us.setdefault(transactional_id, exchange.arrived_us)


def changing_ids(one: Evidence, two: Evidence) -> Iterator[Lint]:
    """Yield a lint if two starts of the job use different transactional ids.

    The second start then cannot end transactions that the first one left open. Kafka Streams is not reported: it uses a
    random id for each process without a store, and the group fences its members (KIP-447).
    """
    ours, theirs = _chosen_ids(one), _chosen_ids(two)
    if ours and ours != theirs and not one.is_flink:
        first, second = sorted(ours - theirs or ours)[0], sorted(theirs - ours or theirs)[0]
        yield Lint(
            "changing-id",
            f"the transactional.id changes with each start ({first}, then {second}): the new producer does not fence "
            "the old one, and its open transaction holds back consumers until it times out",
        )


def _chosen_ids(evidence: Evidence) -> set[str]:
    return {
        each.transactional_id
        for each in evidence.exchanges
        if each.transactional_id and _STREAMS not in each.client_id
    }
