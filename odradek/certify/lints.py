"""What a trace says against a job, before anything has failed: the diagnosis in words.

Each lint looks at the exchanges of one run and names what it saw. A lint alone is no verdict: it says why a run that lost or
doubled records did so, and warns in a run that did not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from odradek.certify.exchanges import Exchange, batches

DOCS: Final = "docs/certify.md"
READ_COMMITTED: Final = 1
TopicPartition = tuple[str, int]
_SPARK: Final = "spark-kafka-"
_STREAMS: Final = "-StreamThread-"
_FATAL: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
_AUTO_COMMIT_MS: Final = 1000
_GOES_ON: Final = 3
"""So many reads and heartbeats after its producer's end show that a job lives on."""


@dataclass(frozen=True, slots=True)
class Run:
    """What lints know of a run."""

    exchanges: Sequence[Exchange]
    inputs: frozenset[str]
    outputs: frozenset[str]

    @property
    def transactional_ids(self) -> list[str]:
        return sorted({each.transactional_id for each in self.exchanges if each.transactional_id})


@dataclass(frozen=True, slots=True)
class Lint:
    """One line of the diagnosis."""

    name: str
    sentence: str
    example: str = ""
    """The exchange that shows it."""

    @property
    def link(self) -> str:
        return f"{DOCS}#{self.name}"

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "sentence": self.sentence, "example": self.example, "link": self.link}


def lint(run: Run) -> list[Lint]:
    """The first sight of each thing that a run's trace shows, the likeliest reason first."""
    return [found for each in _LINTS if (found := next(each(run), None)) is not None]


# -- consumers ------------------------------------------------------------------------------------------------------


def _read_uncommitted(run: Run) -> Iterator[Lint]:
    for exchange in run.exchanges:
        if exchange.api == "Fetch" and exchange.request.get("isolation_level") != READ_COMMITTED:
            topics = run.inputs & set(exchange.topics)
            if topics:
                yield Lint(
                    "read-uncommitted",
                    f"the consumer reads {', '.join(sorted(topics))} with read_uncommitted: it gets records of transactions "
                    "that abort. Set isolation.level=read_committed",
                    exchange.line,
                )


def _offsets_outside(run: Run) -> Iterator[Lint]:
    commits = [
        each
        for each in run.exchanges
        if each.api == "OffsetCommit" and run.inputs & set(each.topics) and each.succeeded
    ]
    if not commits:
        return
    automatic = _is_automatic(commits)
    how = "enable.auto.commit commits" if automatic else "the consumer commits"
    if run.transactional_ids:
        remedy = "Set enable.auto.commit=false, and send" if automatic else "Send"
        sentence = (
            f"{how} the offsets of its input outside of the transaction: a crash between the two loses records or doubles "
            f"them. {remedy} the offsets with sendOffsetsToTransaction"
        )
    else:
        sentence = (
            f"{how} the offsets, and no producer is transactional: a crash between Produce and OffsetCommit loses records "
            "or doubles them"
        )
    yield Lint("auto-commit" if automatic else "offsets-outside", sentence, commits[0].line)


def _is_automatic(commits: Sequence[Exchange]) -> bool:
    """Clients that commit by themselves do so at regular times; a program's own commits follow its work."""
    gaps_ms = [(two.arrived_us - one.arrived_us) / 1000 for one, two in pairwise(commits)]
    if not gaps_ms:
        return False
    middle = sorted(gaps_ms)[len(gaps_ms) // 2]
    return middle >= _AUTO_COMMIT_MS and all(abs(gap - middle) < 0.2 * middle for gap in gaps_ms)


def _no_fencing(run: Run) -> Iterator[Lint]:
    for exchange in run.exchanges:
        if exchange.api == "TxnOffsetCommit" and not exchange.request.get("member_id"):
            yield Lint(
                "no-group-metadata",
                "TxnOffsetCommit names neither generation nor member: a consumer that lost its partitions is not fenced "
                "(KIP-447). Give sendOffsetsToTransaction the consumer's group metadata",
                exchange.line,
            )


# -- producers ------------------------------------------------------------------------------------------------------


def _weak_producer(run: Run) -> Iterator[Lint]:
    for exchange, topic, batch in _outside(run):
        acks = exchange.request.get("acks")
        if batch.get("producer_id", -1) < 0 or acks != -1:
            weak = "without idempotence" if batch.get("producer_id", -1) < 0 else f"with acks={acks}"
            beside = " beside a transactional one" if run.transactional_ids else ""
            yield Lint(
                "weak-producer",
                f"a producer {weak} writes {topic}{beside}: what it sends again is there twice, what is lost is lost. "
                "Use one transactional producer",
                exchange.line,
            )


def _second_producer(run: Run) -> Iterator[Lint]:
    if not run.transactional_ids:
        return
    for exchange, topic, batch in _outside(run):
        if batch.get("producer_id", -1) >= 0 and exchange.request.get("acks") == -1:
            yield Lint(
                "second-producer",
                f"a second producer writes {topic} outside of the transaction: its records stay when the transaction aborts",
                exchange.line,
            )


def _outside(run: Run) -> Iterator[tuple[Exchange, str, Mapping[str, Any]]]:
    for exchange in run.exchanges:
        if exchange.api == "Produce" and not exchange.transactional_id:
            for topic, _, batch in batches(exchange):
                if topic in run.outputs:
                    yield exchange, topic, batch


def _known_sinks(run: Run) -> Iterator[Lint]:
    if run.transactional_ids:
        return
    for exchange, topic, _ in _outside(run):
        if _STREAMS in exchange.client_id:
            yield Lint(
                "streams-at-least-once",
                f"Kafka Streams writes {topic} with processing.guarantee=at_least_once. Set exactly_once_v2",
                exchange.line,
            )
    if any(_SPARK in (each.group or "") + each.client_id for each in run.exchanges):
        for exchange, topic, _ in _outside(run):
            yield Lint(
                "spark-sink",
                f"Spark's own Kafka sink writes {topic}: a task or batch that runs again writes its records again",
                exchange.line,
            )


def _shared_id(run: Run) -> Iterator[Lint]:
    """Two live producers with one transactional id: each InitProducerId fences the other one, by turns."""
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for exchange in run.exchanges:
        if exchange.api == "InitProducerId" and exchange.transactional_id:
            owners[exchange.transactional_id].append(exchange.peer)
    for transactional_id, peers in owners.items():
        fenced = [
            each
            for each in run.exchanges
            if each.transactional_id == transactional_id and _FATAL & set(each.errors)
        ]
        if len(set(peers)) > 1 and fenced:
            yield Lint(
                "shared-id",
                f"two instances use the transactional.id {transactional_id}, and fence each other by turns. "
                "Give each instance an id of its own, the same at each start",
                fenced[0].line,
            )


def _used_on(run: Run) -> Iterator[Lint]:
    """After a fatal error of a producer nothing makes a new one: the job goes on reading, and writes no more."""
    dead: dict[str, Exchange] = {}
    later: Counter[str] = Counter()
    for exchange in run.exchanges:
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


def _no_rewind(run: Run) -> Iterator[Lint]:
    """After an abort no Fetch asks for the records of the aborted transaction again."""
    positions = _Positions()
    for exchange in run.exchanges:
        positions.see(exchange)
    for (topic, partition), (committed, abort) in positions.passed_over().items():
        yield Lint(
            "no-rewind",
            f"after an abort the consumer does not go back to the committed position ({topic}-{partition} offset "
            f"{committed}), and loses the records of the aborted transaction. Seek to the committed positions",
            abort.line,
        )


class _Positions:
    """Committed positions, and the aborts after which they were not fetched from again."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, int] = {}
        self._offered: dict[str, dict[TopicPartition, int]] = {}
        self._fetched: dict[TopicPartition, int] = {}
        self._aborted: dict[TopicPartition, tuple[int, Exchange]] = {}
        self._goes_on: set[TopicPartition] = set()

    def see(self, exchange: Exchange) -> None:
        if exchange.api == "Fetch":
            self._fetch(exchange)
        elif exchange.api == "TxnOffsetCommit" and exchange.transactional_id:
            self._offered[exchange.transactional_id] = dict(_offsets(exchange))
        elif exchange.api == "EndTxn" and exchange.transactional_id and exchange.succeeded:
            offered = self._offered.pop(exchange.transactional_id, {})
            if exchange.request.get("committed"):
                self._committed |= offered
            else:
                for key, offset in self._fetched.items():
                    if offset > self._committed.get(key, 0):
                        self._aborted.setdefault(key, (self._committed.get(key, 0), exchange))

    def _fetch(self, exchange: Exchange) -> None:
        for key, offset in _fetches(exchange):
            if key in self._aborted:
                self._goes_on.add(key)
                if offset <= self._aborted[key][0]:
                    del self._aborted[key]
            self._fetched[key] = offset

    def passed_over(self) -> dict[TopicPartition, tuple[int, Exchange]]:
        """The position that was committed at the abort, and the abort, by partition that was read on."""
        return {key: found for key, found in self._aborted.items() if key in self._goes_on}


def _offsets(exchange: Exchange) -> Iterable[tuple[TopicPartition, int]]:
    for topic in exchange.request.get("topics") or ():
        for each in topic["partitions"]:
            yield (
                (topic.get("name") or topic.get("topic_name"), each["partition_index"]),
                each["committed_offset"],
            )


def _fetches(exchange: Exchange) -> Iterable[tuple[TopicPartition, int]]:
    for topic in exchange.request.get("topics") or ():
        for each in topic["partitions"]:
            yield (topic.get("topic_name") or topic.get("topic"), each["partition"]), each["fetch_offset"]


def _short_time_out(run: Run) -> Iterator[Lint]:
    """A transaction that takes half of its time-out in a run without faults has no room for a slow day."""
    timeouts_ms: dict[str, int] = {}
    begun_us: dict[str, int] = {}
    for exchange in run.exchanges:
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


_LINTS: Final[tuple[Callable[[Run], Iterator[Lint]], ...]] = (
    _known_sinks,
    _offsets_outside,
    _read_uncommitted,
    _second_producer,
    _weak_producer,
    _no_rewind,
    _used_on,
    _shared_id,
    _no_fencing,
    _short_time_out,
)


def changing_ids(one: Run, two: Run) -> Iterator[Lint]:
    """Two starts of the same job use other transactional ids: what the first one left open, the second cannot end."""
    ours, theirs = set(one.transactional_ids), set(two.transactional_ids)
    if ours and ours != theirs:
        first, second = sorted(ours - theirs or ours)[0], sorted(theirs - ours or theirs)[0]
        yield Lint(
            "changing-id",
            f"the transactional.id is another one at each start ({first}, then {second}): the new producer does not fence "
            "the old one, and its open transaction holds readers up until it times out",
        )
