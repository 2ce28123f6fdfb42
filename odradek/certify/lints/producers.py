"""What a job writes its output with, and what it does when a producer is refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.certify.exchanges import ENDS, Exchange, batches
from odradek.certify.lints.evidence import Evidence, Lint

_SPARK: Final = "spark-kafka-"
_STREAMS: Final = "-StreamThread-"
_FATAL: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
_REFUSED: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "INVALID_RECORD", *_FATAL})
"""What becomes of a batch for good."""
_GOES_ON: Final = 3
"""So many reads and heartbeats after its producer's end show that a job lives on."""


def weak_producer(evidence: Evidence) -> Iterator[Lint]:
    for exchange, topic, batch in _outside(evidence):
        acks = exchange.request.get("acks")
        if batch.get("producer_id", -1) < 0 or acks != -1:
            weak = "without idempotence" if batch.get("producer_id", -1) < 0 else f"with acks={acks}"
            beside = " beside a transactional one" if evidence.transactional_ids else ""
            yield Lint(
                "weak-producer",
                f"a producer {weak} writes {topic}{beside}: what it sends again is there twice, what is lost is lost. "
                "Use one transactional producer",
                exchange.line,
            )


def second_producer(evidence: Evidence) -> Iterator[Lint]:
    if not evidence.transactional_ids:
        return
    for exchange, topic, batch in _outside(evidence):
        if batch.get("producer_id", -1) >= 0 and exchange.request.get("acks") == -1:
            yield Lint(
                "second-producer",
                f"a second producer writes {topic} outside of the transaction: its records stay when the transaction aborts",
                exchange.line,
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
            yield Lint(
                "streams-at-least-once",
                f"Kafka Streams writes {topic} with processing.guarantee=at_least_once. Set exactly_once_v2",
                exchange.line,
            )
    if any(_SPARK in (each.group or "") + each.client_id for each in evidence.exchanges):
        for exchange, topic, _ in _outside(evidence):
            yield Lint(
                "spark-sink",
                f"Spark's own Kafka sink writes {topic}: a task or batch that runs again writes its records again",
                exchange.line,
            )


def shared_id(evidence: Evidence) -> Iterator[Lint]:
    """Two live producers with one transactional id: each InitProducerId fences the other one, by turns."""
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for exchange in evidence.exchanges:
        if exchange.api == "InitProducerId" and exchange.transactional_id:
            owners[exchange.transactional_id].append(exchange.peer)
    for transactional_id, peers in owners.items():
        fenced = [
            each
            for each in evidence.exchanges
            if each.transactional_id == transactional_id and _FATAL & set(each.errors)
        ]
        if len(set(peers)) > 1 and fenced:
            yield Lint(
                "shared-id",
                f"two instances use the transactional.id {transactional_id}, and fence each other by turns. "
                "Give each instance an id of its own, the same at each start",
                fenced[0].line,
            )


def used_on(evidence: Evidence) -> Iterator[Lint]:
    """After a fatal error of a producer nothing makes a new one: the job goes on reading, and writes no more."""
    dead: dict[str, Exchange] = {}
    later: Counter[str] = Counter()
    for exchange in evidence.exchanges:
        transactional_id = exchange.transactional_id
        if exchange.api == "InitProducerId" and transactional_id:
            dead.pop(transactional_id, None)
        elif transactional_id and transactional_id not in dead and _FATAL & set(exchange.errors):
            dead[transactional_id] = exchange
            later[transactional_id] = 0
        elif exchange.api in ("Fetch", "Heartbeat", "ConsumerGroupHeartbeat"):
            later.update(dead.keys())
    for transactional_id, exchange in dead.items():
        if later[transactional_id] >= _GOES_ON:
            yield Lint(
                "fatal-error-swallowed",
                f"after {', '.join(dict.fromkeys(exchange.errors))} the job goes on, and makes no new producer for "
                f"{transactional_id}: it can commit nothing any more. Close the producer, and end or make a new one",
                exchange.line,
            )


def unawaited(evidence: Evidence) -> Iterator[Lint]:
    """Java's client and librdkafka refuse such a commit; aiokafka leaves it to the job."""
    refused: dict[str, Exchange] = {}
    for exchange in evidence.exchanges:
        transactional_id = exchange.transactional_id
        if transactional_id and exchange.api == "Produce" and _REFUSED & set(exchange.errors):
            refused.setdefault(transactional_id, exchange)
        elif transactional_id and exchange.api in ENDS and exchange.succeeded:
            first = refused.pop(transactional_id, None)
            if first is not None and exchange.request.get("committed"):
                errors = ", ".join(dict.fromkeys(first.errors))
                yield Lint(
                    "send-not-awaited",
                    f"Produce was refused with {errors}, and the transaction was committed all the same: await each "
                    "send before the commit (aiokafka: the future that send returns)",
                    first.line,
                )


def short_time_out(evidence: Evidence) -> Iterator[Lint]:
    """A transaction that takes half of its time-out in a run without faults has no room for a slow day."""
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
                yield Lint(
                    "short-time-out",
                    f"a transaction of {transactional_id} took {took_ms:.0f} ms of its transaction.timeout.ms={timeout_ms}: "
                    "a batch that takes longer is aborted under its hands",
                    exchange.line,
                )
        elif exchange.api in ("AddPartitionsToTxn", "Produce", "AddOffsetsToTxn"):
            begun_us.setdefault(transactional_id, exchange.arrived_us)


def changing_ids(one: Evidence, two: Evidence) -> Iterator[Lint]:
    """Two starts of the same job use other transactional ids: what the first one left open, the second cannot end.

    Kafka Streams draws a new id for each process without a store; its members are fenced by their group (KIP-447).
    """
    ours, theirs = _chosen_ids(one), _chosen_ids(two)
    if ours and ours != theirs and not one.is_flink:
        first, second = sorted(ours - theirs or ours)[0], sorted(theirs - ours or theirs)[0]
        yield Lint(
            "changing-id",
            f"the transactional.id is another one at each start ({first}, then {second}): the new producer does not fence "
            "the old one, and its open transaction holds readers up until it times out",
        )


def _chosen_ids(evidence: Evidence) -> set[str]:
    return {
        each.transactional_id
        for each in evidence.exchanges
        if each.transactional_id and _STREAMS not in each.client_id
    }
