"""Read topics and assert exactly-once results in tests. A failed assertion prints the timelines of the transactions.

    broker.assert_exactly_once("orders", ["a", "b"])
    broker.assert_committed("payments")
    broker.assert_no_open_transactions()

The broker responds to EndTxn before it writes the markers, as Kafka does. Each of these methods therefore first waits for
the markers of decided transactions (PrepareCommit, PrepareAbort). None of them waits for an open transaction.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from odradek.asynchronous import asynchronous
from odradek.control_client import ControlClient, in_path
from odradek.elsewhere import found_elsewhere
from odradek.errors import (
    HIDDEN_IN_TRACEBACKS,
    AssertionFailed,
    ErrorsOfABroker,
    NotFound,
    RecordsHiddenWarning,
    TransactionNotReached,
)
from odradek.explanations import Explanation, causes, explanations
from odradek.hidden_records import hidden_records, why_hidden
from odradek.nearest import did_you_mean, listed
from odradek.printable import printable, printable_lines
from odradek.topics import ReadRecords, Record, TopicOperations, read_records
from odradek.transactions import PREPARED, Transaction, Transactions
from odradek.waiting import WAIT_S
from odradek.warning import warn
from odradek.words import Isolation, TransactionState

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

TIMELINES_MAX: Final = 3
TIMELINE_LINES_MAX: Final = 60
LISTED_MAX: Final = 20
"""Maximum number of values of each kind (lost, duplicated, unexpected) in the message of a failed assertion."""
_NOT_PREPARED: Final[tuple[TransactionState, ...]] = (
    "Empty",
    "Ongoing",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
)

Value = str | bytes | None


class Assertions(TopicOperations, ErrorsOfABroker):
    """The assertions of `odradek.Broker` and of the object that `odradek.connect` returns."""

    def records(
        self,
        topic: str,
        isolation: Isolation = "read_committed",
        partition: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> list[Record]:
        """Return the records that consumers of this isolation level read from a topic, by partition and offset.

        "read_uncommitted" also returns the records of open and aborted transactions; ``Record.outcome`` tells them apart.

        Waits at most ``timeout_s`` seconds for the markers of decided transactions. Warns with ``RecordsHiddenWarning`` if
        decided records are then still above the last stable offset; the warning names the rule, the node or the transaction
        that holds back the last stable offset. Raises ``NotFound`` if the topic does not exist.
        """
        client = self._control_client()
        read, waited_s = read_decided(client, topic, isolation, partition, timeout_s)
        if isolation == "read_committed" and (hidden := hidden_records(client, topic, read, waited_s)):
            warn(printable_lines("\n".join(hidden)), RecordsHiddenWarning)
        return read.records

    def assert_exactly_once(self, topic: str, expected: Iterable[Value], timeout_s: float = WAIT_S) -> None:
        """Assert that read_committed consumers get each expected value once, in any order, and nothing else.

        A value is a str, bytes, or None for a record without a value; anything else is a ``TypeError``.

        ``AssertionFailed`` lists the lost, duplicated and unexpected values, the place and outcome of their records,
        and the timelines of the transactional ids that wrote them. Waits for decided transactions as ``records`` does.
        """
        wanted = _expected(expected)
        client = self._control_client()
        read, _ = read_decided(client, topic, timeout_s=timeout_s)
        if Counter(record.value for record in read.records) != wanted:
            raise AssertionFailed(_exactly_once_report(client, topic, wanted, read.records))

    def assert_committed(self, transactional_id: str, timeout_s: float = WAIT_S) -> None:
        """Assert that the last transaction of a transactional id is committed and that all its markers are written.

        Waits at most ``timeout_s`` seconds for the markers.
        """
        client = self._control_client()
        _await_markers(client, timeout_s, transactional_id=transactional_id)
        try:
            shown = client.get(f"/v1/transactions/{in_path(transactional_id)}/timeline")
        except NotFound:
            known = [each.transactional_id for each in Transactions(client)]
            raise AssertionFailed(
                f"no coordinator knows the transactional id {printable(transactional_id)!r}; known: {listed(known)}"
                + did_you_mean(transactional_id, known)
            ) from None
        transactions = shown["timeline"]["transactions"]
        verdict = transactions[-1]["verdict"] if transactions else "not begun"
        if verdict != "committed":
            lines = [
                f"the last transaction of {transactional_id} is {verdict}",
                *causes(client, transactional_id=transactional_id),
                "",
                _shortened(shown["text"]),
            ]
            raise AssertionFailed(printable_lines("\n".join(lines)))

    def assert_no_open_transactions(self, timeout_s: float = WAIT_S) -> None:
        """Assert that no coordinator has an open transaction, and that no partition waits for a marker.

        Waits at most ``timeout_s`` seconds for the markers of decided transactions.
        """
        client = self._control_client()
        _await_markers(client, timeout_s)
        open_ids = [
            each for each in Transactions(client) if each.state in PREPARED or each.state == "Ongoing"
        ]
        lines = [f"  {each.transactional_id}: {each.state}, {_places(each)}" for each in open_ids]
        coordinated = {each.producer_id for each in open_ids}
        for place, hanging in _open_in_partitions(client):
            if hanging["producer_id"] not in coordinated:
                lines.append(
                    f"  {place} @{hanging['first_offset']}: producer id {hanging['producer_id']}, "
                    "which no coordinator will end: a hanging transaction"
                )
        if lines:
            timelines = _timelines(client, [each.transactional_id for each in open_ids])
            head = f"{len(lines)} open transaction{'s' * (len(lines) > 1)}:"
            raise AssertionFailed(printable_lines("\n".join([head, *_some(lines), *timelines])))

    def explain(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
        offset: int | None = None,
    ) -> list[Explanation]:
        """Explain why readers of a topic or a partition stop, why a group lags, or what a transactional id waits for.

        ``explain("orders", 0, group="workers", offset=17)`` explains the state of one record in a share group. Without
        arguments, explain every problem in the cluster. ``print(*broker.explain("orders"), sep="\\n\\n")``
        """
        return explanations(
            self._control_client(),
            topic,
            partition,
            group=group,
            transactional_id=transactional_id,
            offset=offset,
        )

    records_async = asynchronous(records)
    assert_exactly_once_async = asynchronous(assert_exactly_once)
    assert_committed_async = asynchronous(assert_committed)
    assert_no_open_transactions_async = asynchronous(assert_no_open_transactions)


def read_decided(
    client: ControlClient,
    topic: str,
    isolation: Isolation = "read_committed",
    partition: int | None = None,
    timeout_s: float = WAIT_S,
) -> tuple[ReadRecords, float | None]:
    """Wait for the markers of a topic's decided transactions, then read the topic.

    Returns the result, and the seconds waited if the wait timed out, else None.
    """
    waited_s = _await_markers(client, timeout_s, topic=topic)
    return read_records(client, topic, isolation, partition), waited_s


def _await_markers(
    client: ControlClient, timeout_s: float, *, topic: str | None = None, transactional_id: str | None = None
) -> float | None:
    """Wait for the markers of decided transactions. Returns the seconds waited if the wait timed out, else None."""
    transactions = Transactions(client)
    deadline = time.monotonic() + timeout_s
    for each in transactions.list():
        if each.state not in PREPARED or (transactional_id or each.transactional_id) != each.transactional_id:
            continue
        if topic is not None and topic not in {place.rpartition("-")[0] for place in each.partitions}:
            continue
        try:
            transactions.wait(each.transactional_id, _NOT_PREPARED, max(0.0, deadline - time.monotonic()))
        except TransactionNotReached:
            return timeout_s
    return None


def _open_in_partitions(client: ControlClient) -> Iterator[tuple[str, dict[str, Any]]]:
    for topic in client.get("/v1/topics")["topics"]:
        for partition in topic["partitions"]:
            for each in partition["open_transactions"]:
                yield f"{topic['name']}-{partition['partition']}", each


def _places(transaction: Transaction) -> str:
    return ", ".join(transaction.partitions) or "no partition yet"


# -- the texts of failed assertions ----------------------------------------------------------------------------


def _exactly_once_report(
    client: ControlClient, topic: str, wanted: Counter[Value], found: list[Record]
) -> str:
    everything = read_records(client, topic, "read_uncommitted").records
    seen = Counter(record.value for record in found)
    lost = [value for value in wanted if not seen[value]]
    # A value that is expected twice and arrives once counts as lost too.
    lost += [value for value in wanted if 0 < seen[value] < wanted[value]]
    duplicated = [value for value in seen if seen[value] > wanted[value] > 0]
    unexpected = [value for value in seen if not wanted[value]]
    lines = [f"{topic}: {len(lost)} lost, {len(duplicated)} duplicated, {len(unexpected)} unexpected"]
    visible = {_place(record) for record in found}
    concerned: list[Record] = []
    in_log = {record.value for record in everything}
    places = found_elsewhere(client, topic, {value for value in lost if value not in in_log})
    for kind, values in (("lost", lost), ("duplicated", duplicated), ("unexpected", unexpected)):
        told = []
        for value in values:
            records = [record for record in everything if record.value == value]
            concerned += records
            place = f"; another topic has it: {places[value]}" if value in places else ""
            told.append(f"  {kind} {value!r}: {_records_said(records, visible)}{place}")
        lines += _some(told)
    hidden = [each for each in concerned if each.outcome != "aborted" and _place(each) not in visible]
    lines += why_hidden(client, topic, {each.partition for each in hidden})
    ids = _writers(client, topic, {record.producer_id for record in concerned or everything})
    return printable_lines("\n".join([*lines, *_timelines(client, ids)]))


def _records_said(records: Sequence[Record], visible: set[tuple[int, int]]) -> str:
    if not records:
        return "not in the log"
    said = []
    for record in records:
        outcome: str = record.outcome or "no transaction"
        if outcome != "aborted" and _place(record) not in visible:
            outcome += ", not below the last stable offset"
        writer = f", producer {record.producer_id}/{record.producer_epoch}" if record.producer_id >= 0 else ""
        said.append(f"{record.place} ({outcome}{writer})")
    return ", ".join(_some(said))


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset


def _writers(client: ControlClient, topic: str, producer_ids: set[int]) -> list[str]:
    """Transactional ids that may have written to the topic: first the owners of these producer ids, then the ids whose
    current transaction includes the topic.
    """
    known = Transactions(client).list()
    wrote = [each.transactional_id for each in known if each.producer_id in producer_ids]
    writes = [
        each.transactional_id
        for each in known
        if topic in {place.rpartition("-")[0] for place in each.partitions}
    ]
    return list(dict.fromkeys([*wrote, *writes]))


def _timelines(client: ControlClient, transactional_ids: Sequence[str]) -> list[str]:
    texts = []
    for transactional_id in transactional_ids[:TIMELINES_MAX]:
        try:
            text = client.get(f"/v1/transactions/{in_path(transactional_id)}/timeline")["text"]
        except NotFound:
            continue  # the coordinator has expired the id since
        texts += ["", _shortened(text)]
    others = transactional_ids[TIMELINES_MAX:]
    if others:
        texts += ["", f"and the timelines of {len(others)} more: {', '.join(_some(others))}"]
    return texts


def _shortened(text: str) -> str:
    """The text cut to its last lines, which contain the latest events."""
    lines = text.rstrip().split("\n")
    left_out = len(lines) - TIMELINE_LINES_MAX
    if left_out > 0:
        lines = [lines[0], f"({left_out} lines left out)", *lines[-TIMELINE_LINES_MAX:]]
    return "\n".join(lines)


def _some(texts: Sequence[str]) -> list[str]:
    more = len(texts) - LISTED_MAX
    return [*texts[:LISTED_MAX], *([f"  and {more} more"] if more > 0 else [])]


def _expected(values: Iterable[Value]) -> Counter[Value]:
    if isinstance(values, str | bytes):
        raise TypeError(f"expected must be a list of values, such as [{values!r}], not {values!r} alone")
    if not isinstance(values, Iterable):
        raise TypeError(f"expected must be a list of values, not {values!r}")
    return Counter(map(_as_text, values))


def _as_text(value: Value) -> Value:
    """The value in the form of `odradek.topics.Record`: a str if it is UTF-8, else bytes."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise TypeError(f"a record's value is a str, bytes or None, not {value!r} ({type(value).__name__})")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
