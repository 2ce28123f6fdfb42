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
from odradek.certify.faults import ABORTABLE

DOCS: Final = "docs/certify.md"
READ_COMMITTED: Final = 1
TopicPartition = tuple[str, int]
_SPARK: Final = "spark-kafka-"
_STREAMS: Final = "-StreamThread-"
_FLINK: Final = "-enumerator-admin-client"
_FATAL: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
_JOINS: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat"})
_ENDS: Final = frozenset({"EndTxn", "InitProducerId"})
"""A producer that is initialised aborts what the one before it left open."""
_REFUSED: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "INVALID_RECORD", *_FATAL})
"""What becomes of a batch for good."""
_HANDLED: Final = frozenset({"answered", "unanswered", "answer_lost"})
_ABORTABLE: Final = frozenset(ABORTABLE.values())
_AUTO_COMMIT_MS: Final = 1000
_GOES_ON: Final = 3
"""So many reads and heartbeats after its producer's end show that a job lives on."""


@dataclass(frozen=True, slots=True)
class Run:
    """What lints know of a run."""

    exchanges: Sequence[Exchange]
    inputs: frozenset[str]
    outputs: frozenset[str]
    has_times: bool = True
    """Not where a clock was moved: what lies before that looks long ago."""

    @property
    def is_flink(self) -> bool:
        """Its positions are in checkpoints, those of the group are for show; its ids count checkpoints, and each start ends
        what the one before has left open."""
        return any(each.client_id.endswith(_FLINK) for each in self.exchanges)

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
    if not commits or run.is_flink:
        return
    automatic = run.has_times and _is_automatic(commits)
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
    """Only of a group with members: a job that takes its partitions by itself has no generation to name."""
    groups = {each.group for each in run.exchanges if each.api in _JOINS}
    named = set[str | None]()
    for exchange in run.exchanges:
        if exchange.api != "TxnOffsetCommit" or exchange.group not in groups:
            continue
        if exchange.request.get("member_id"):
            named.add(exchange.transactional_id)
            continue
        # Clients forget their member when the group has lost it: what they give is the metadata of now.
        when = " as it was when the records were read" if exchange.transactional_id in named else ""
        yield Lint(
            "no-group-metadata",
            "TxnOffsetCommit names neither generation nor member: a consumer that lost its partitions is not fenced "
            f"(KIP-447). Give sendOffsetsToTransaction the consumer's group metadata{when}",
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


def _unawaited(run: Run) -> Iterator[Lint]:
    """Java's client and librdkafka refuse such a commit; aiokafka leaves it to the job."""
    refused: dict[str, Exchange] = {}
    for exchange in run.exchanges:
        transactional_id = exchange.transactional_id
        if transactional_id and exchange.api == "Produce" and _REFUSED & set(exchange.errors):
            refused.setdefault(transactional_id, exchange)
        elif transactional_id and exchange.api in _ENDS and exchange.succeeded:
            first = refused.pop(transactional_id, None)
            if first is not None and exchange.request.get("committed"):
                errors = ", ".join(dict.fromkeys(first.errors))
                yield Lint(
                    "send-not-awaited",
                    f"Produce was refused with {errors}, and the transaction was committed all the same: await each "
                    "send before the commit (aiokafka: the future that send returns)",
                    first.line,
                )


def _no_rewind(run: Run) -> Iterator[Lint]:
    """After an abort no Fetch asks for the records of the aborted transaction again."""
    positions = _Positions()
    for exchange in run.exchanges:
        positions.see(exchange)
    for (topic, partition), (committed, abort) in positions.passed_over.items():
        if (topic, partition) in positions.owner:
            yield Lint(
                "no-rewind",
                f"after an abort the consumer does not go back to the committed position ({topic}-{partition} offset "
                f"{committed}), and loses the records of the aborted transaction. Seek to the committed positions",
                abort.line,
            )


class _Positions:
    """Committed positions, and the aborts behind which the job went on without a look back.

    It went on if it fetched from further on only, or if it committed a position beyond that of the aborted transaction with
    records that it had fetched before. One that tries the same records again commits the same position.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, int] = {}
        self._offered: dict[str, dict[TopicPartition, int]] = {}
        self._initialised: set[str] = set()
        self.owner: dict[TopicPartition, str] = {}
        """Whose transactions have its positions. Where none has, they lie elsewhere (Spark's checkpoint) or nowhere."""
        self._fetched: dict[TopicPartition, int] = {}
        self._aborted: dict[TopicPartition, tuple[int, Exchange]] = {}
        self._beyond: dict[TopicPartition, int] = {}
        """What the aborted transaction would have committed."""
        self.passed_over: dict[TopicPartition, tuple[int, Exchange]] = {}
        """The position that was committed at the abort, and the abort."""

    def see(self, exchange: Exchange) -> None:
        transactional_id = exchange.transactional_id
        if exchange.api == "Fetch":
            self._fetch(exchange)
        if exchange.api == "TxnOffsetCommit" and transactional_id:
            offered = dict(_offsets(exchange))
            self._offered.setdefault(transactional_id, {}).update(offered)
            self.owner.update(dict.fromkeys(offered, transactional_id))
        if transactional_id and _ABORTABLE & set(exchange.errors):
            # A client that has added nothing yet sends no EndTxn for its abort.
            self._abort(transactional_id, self._offered.get(transactional_id, {}), exchange)
        elif exchange.api in _ENDS and transactional_id and exchange.succeeded:
            offered = self._offered.pop(transactional_id, {})
            if exchange.request.get("committed"):
                self._commit(offered)
            elif exchange.api == "EndTxn" or transactional_id in self._initialised:
                self._abort(transactional_id, offered, exchange)
            self._initialised.add(transactional_id)

    def _fetch(self, exchange: Exchange) -> None:
        for key, offset in _fetches(exchange):
            if key in self._aborted and offset <= self._aborted[key][0]:
                self._looks_back(key)
            elif key in self._aborted and key not in self._beyond:
                self.passed_over[key] = self._aborted[key]
            self._fetched[key] = offset

    def _looks_back(self, key: TopicPartition) -> None:
        for each in (self._aborted, self._beyond, self.passed_over):
            each.pop(key, None)

    def _abort(self, aborted: str, offered: Mapping[TopicPartition, int], abort: Exchange) -> None:
        read_on = {
            key
            for key, offset in self._fetched.items()
            if offset > self._committed.get(key, 0) and self.owner.get(key, aborted) == aborted
        }
        for key in read_on | offered.keys():
            self._aborted.setdefault(key, (self._committed.get(key, 0), abort))
        self._beyond.update(offered)

    def _commit(self, offered: Mapping[TopicPartition, int]) -> None:
        for key, offset in offered.items():
            if key in self._beyond:
                if offset > self._beyond[key]:
                    self.passed_over[key] = self._aborted[key]
                else:
                    self._looks_back(key)
        self._committed |= offered


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


def _reported_early(run: Run) -> Iterator[Lint]:
    """After a start a job reads from further on than what was committed: it keeps positions elsewhere, and kept them early.

    Connections that were not there before tell a start from a producer that is initialised again.
    """
    positions, starts = _Committed(), _Starts()
    for exchange in run.exchanges:
        positions.see(exchange)
        for (topic, partition), offset in starts.begun_with(exchange):
            committed = positions.committed.get((topic, partition), 0)
            if topic in positions.topics and offset > committed:
                yield Lint(
                    "reported-early",
                    f"after a start the job reads {topic}-{partition} from offset {offset} on, and no more than "
                    f"{committed} was committed: it took records for done before the commit was answered. Send "
                    "positions with the transaction, or write them down once the commit has returned",
                    exchange.line,
                )


class _Starts:
    """What a process reads first, of processes that took the place of another one."""

    def __init__(self) -> None:
        self._initialised: set[str] = set()
        self._fetching: set[str] = set()
        """Connections."""
        self._before: set[str] | None = None
        """Those that fetched before the newest start."""
        self._begun: set[TopicPartition] = set()

    def begun_with(self, exchange: Exchange) -> Iterator[tuple[TopicPartition, int]]:
        peer = exchange.peer
        if exchange.api == "InitProducerId":
            if self._initialised and peer not in self._initialised:
                self._before, self._begun = set(self._fetching), set()
            self._initialised.add(peer)
        elif exchange.api == "Fetch":
            for key, offset in _fetches(exchange):
                if self._before is not None and peer not in self._before and key not in self._begun:
                    yield key, offset
                self._begun.add(key)
            self._fetching.add(peer)


class _Committed:
    """The positions of the groups, as the broker has them after each exchange."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.topics: set[str] = set()
        """Those of which a position was ever sent."""
        self._offered: dict[str, dict[TopicPartition, int]] = {}

    def see(self, exchange: Exchange) -> None:
        transactional_id = exchange.transactional_id or ""
        if exchange.api in ("OffsetCommit", "TxnOffsetCommit"):
            self.topics |= set(exchange.topics)
        if exchange.errors or exchange.outcome not in _HANDLED:
            return
        if exchange.api == "OffsetCommit":
            self.committed.update(_offsets(exchange))
        elif exchange.api == "TxnOffsetCommit":
            self._offered.setdefault(transactional_id, {}).update(_offsets(exchange))
        elif exchange.api == "EndTxn":
            offered = self._offered.pop(transactional_id, {})
            self.committed |= offered if exchange.request.get("committed") else {}


def _short_time_out(run: Run) -> Iterator[Lint]:
    """A transaction that takes half of its time-out in a run without faults has no room for a slow day."""
    if not run.has_times:
        return
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
    _unawaited,
    _second_producer,
    _weak_producer,
    _no_rewind,
    _reported_early,
    _used_on,
    _shared_id,
    _no_fencing,
    _short_time_out,
)


def changing_ids(one: Run, two: Run) -> Iterator[Lint]:
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


def _chosen_ids(run: Run) -> set[str]:
    return {
        each.transactional_id
        for each in run.exchanges
        if each.transactional_id and _STREAMS not in each.client_id
    }
