"""Formats an exchange as one line of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from broker.logging.printable import printable
from lab.trace.decoding import Decoded, answer_dict, request_dict
from lab.trace.exchange import Exchange, Names, Outcome, no_names

PLACES_TOLD_MAX: Final = 4
"""Largest number of topic partitions named in one line. Further partitions are only counted."""
ERRORS_TOLD_MAX: Final = 4
RANGES_TOLD_MAX: Final = 4
"""Largest number of ranges of records named for one partition of a share group."""
ACKNOWLEDGE_TYPES: Final = ("gap", "accept", "release", "reject", "renew")
DELIVERY_STATES: Final = ("available", "acquired", "acknowledged", "archiving", "archived")

ErrorAt = tuple[str | None, int | None, str]
"""(topic, partition, name of the error); None for an error that belongs to no topic or partition."""

_YEAR_10000_MS: Final = 253_402_300_800_000
_TOPIC_KEYS: Final = ("topic_name", "topic", "name", "topic_id")
_INDEX_KEYS: Final = ("partition_index", "partition", "partition_id", "index")
_OUTCOMES: Final = {
    Outcome.IN_PROGRESS: "in progress",
    Outcome.HELD: "held by a rule",
    Outcome.UNANSWERED: "no answer wanted",
    Outcome.ANSWER_LOST: "ANSWER LOST by a rule",
    Outcome.CONNECTION_GONE: "CONNECTION GONE before the answer",
}


def text_line(exchange: Exchange, names: Names = no_names) -> str:
    """An exchange as one line of text.

    ``12:00:01.250 node 1 < producer-1@127.0.0.1:50312 EndTxn v5 #7 tx=orders pid=3/0 commit -> ok 3/1 0.4 ms``

    Time of arrival (UTC), node and sender, API and version, correlation id, summary of the request, summary of the
    response, duration.
    """
    asked = exchange.request_summary
    if asked is None:
        asked = request_summary(request_dict(exchange, names))
    words = [
        time_of_day(exchange.arrived_ms),
        f"node {exchange.node_id} < {_asker(exchange)}",
        f"{exchange.api} v{exchange.api_version} #{exchange.correlation_id}",
        asked,
        f"-> {_outcome(exchange, names)}",
    ]
    if exchange.handled_alone:
        words.append(f"(handled {exchange.handled_alone} more)")
    if exchange.took_us is not None:
        words.append(f"{exchange.took_us / 1000:.1f} ms")
    return printable(" ".join(filter(None, words)))


def time_of_day(time_ms: int) -> str:
    """A time as ``12:00:01.250`` in UTC; as its number if the calendar has no such time (clients may send any timestamp)."""
    if not 0 <= time_ms < _YEAR_10000_MS:
        return str(time_ms)
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


def _asker(exchange: Exchange) -> str:
    if exchange.from_node is not None:
        return f"node {exchange.from_node}"
    return f"{exchange.client_id or '-'}@{exchange.peer}"


def _outcome(exchange: Exchange, names: Names) -> str:
    said = exchange.answer_summary
    if said is None and (answer := answer_dict(exchange, names)) is not None:
        said = answer_summary(answer)
    if exchange.outcome is Outcome.ANSWERED:
        return said or "ok"
    return _OUTCOMES[exchange.outcome] + (f" ({said})" if said else "")


# -- summaries ------------------------------------------------------------------------------------------------------


def request_summary(request: Decoded) -> str:
    """Transactional id, producer, group, decision, topic partitions with the sequences of their batches."""
    return " ".join([*_facts(request), *_shortened(_places(request), PLACES_TOLD_MAX)])


def answer_summary(answer: Decoded) -> str:
    """Names of the errors if there are any, else ``ok`` with producers, offsets, batches."""
    errors = list(dict.fromkeys(map(_error_text, errors_in(answer))))
    if errors:
        return " ".join(_shortened(errors, ERRORS_TOLD_MAX))
    return " ".join(["ok", *_facts(answer), *_shortened(_places(answer, bare=False), PLACES_TOLD_MAX)])


def _facts(message: Decoded) -> Iterator[str]:
    """Ids and decisions at the top of a message, or in the lists of transactions, groups or markers of later versions."""
    for part in (message, *_parts(message)):
        transactional_id = part.get("transactional_id") or part.get("v3_and_below_transactional_id")
        if transactional_id:
            yield f"tx={transactional_id}"
        producer_id = part.get("producer_id", part.get("v3_and_below_producer_id", -1))
        if producer_id is not None and producer_id >= 0:
            epoch = part.get("producer_epoch", part.get("v3_and_below_producer_epoch"))
            yield f"pid={producer_id}" if epoch is None else f"pid={producer_id}/{epoch}"
        if part.get("group_id"):
            yield f"group={part['group_id']}"
        if part.get("member_id"):
            yield f"member={part['member_id']}"
        for decision in ("committed", "transaction_result"):
            if decision in part:
                yield "commit" if part[decision] else "abort"
    keys = message.get("coordinator_keys") or ([message["key"]] if message.get("key") else [])
    if keys and "key_type" in message:
        yield f"{'transaction' if message['key_type'] == 1 else 'group'}={','.join(map(str, keys))}"


def _parts(message: Decoded) -> Iterator[Decoded]:
    for name in ("transactions", "markers", "groups", "group", "results_by_transaction"):
        found = message.get(name)
        if isinstance(found, list):
            yield from (each for each in found if isinstance(each, dict))


def _places(part: Any, topic: str | None = None, *, bare: bool = True) -> Iterator[str]:
    """The topic partitions in a part of a message, each with its offset or records, such as ``orders-0@17``.

    With ``bare`` also topics and partitions without offset or records. ``topic``: the topic of the part, or None.
    """
    if isinstance(part, list):
        for each in part:
            if isinstance(each, int) and topic is not None:
                if bare:
                    yield f"{topic}-{each}"
            else:
                yield from _places(each, topic, bare=bare)
    elif isinstance(part, dict):
        index = _first(part, _INDEX_KEYS)
        if topic is not None and isinstance(index, int):
            of_it = _of_partition(part)
            if of_it or bare:
                yield f"{topic}-{index}{of_it}"
            return
        inner = _topic_of(part) or topic
        lists = [value for name, value in part.items() if isinstance(value, list) and name not in _NO_PLACES]
        if inner is not None and bare and not lists and inner != topic:
            yield inner
        for value in lists:
            yield from _places(value, inner, bare=bare)


_NO_PLACES: Final = frozenset(
    {"brokers", "node_endpoints", "coordinators", "members", "api_keys", "configs", "protocols"}
)


def _topic_of(part: Decoded) -> str | None:
    name = _first(part, _TOPIC_KEYS)
    return name if isinstance(name, str) else None


def _first(part: Decoded, names: Iterable[str]) -> Any:
    return next((part[name] for name in names if part.get(name) is not None), None)


def _of_partition(part: Decoded) -> str:
    """``@17`` for an offset, ``[3 records seq 0-2 pid=7/0]`` for records with sequences, the ranges of records for share
    groups; "" if there is none of these.
    """
    for name, text_of in _RANGES.items():
        if part.get(name):
            return f"[{', '.join(_shortened(map(text_of, part[name]), RANGES_TOLD_MAX))}]"
    records = part.get("records")
    if isinstance(records, dict):
        return _of_records(records)
    for name in ("base_offset", "offset", "fetch_offset", "committed_offset", "end_offset"):
        offset = part.get(name)
        if offset is not None and offset >= 0:
            return f"@{offset}"
    return ""


def range_text(part: Decoded) -> str:
    """``first_offset`` and ``last_offset`` as text: ``0-3``, or ``4`` for one record."""
    first, last = part["first_offset"], part["last_offset"]
    return f"{first}" if first == last else f"{first}-{last}"


def _acknowledged(batch: Decoded) -> str:
    """An acknowledgement batch as text: ``accept 0-3``, or if its types differ ``accept,release 0-3``."""
    names = dict.fromkeys(batch["acknowledge_types"])
    return f"{','.join(value_name(ACKNOWLEDGE_TYPES, each) for each in names)} {range_text(batch)}"


def value_name(names: Sequence[str], value: int) -> str:
    """The name of a value; the value itself if it has none, since a client may send any."""
    return names[value] if 0 <= value < len(names) else str(value)


_RANGES: Final[Mapping[str, Callable[[Decoded], str]]] = {
    "acknowledgement_batches": _acknowledged,
    "acquired_records": lambda each: f"acquired {range_text(each)} delivery {each['delivery_count']}",
    "state_batches": lambda each: (
        f"{value_name(DELIVERY_STATES, each['delivery_state'])} {range_text(each)} delivery {each['delivery_count']}"
    ),
}
"""Fields with ranges of records in the requests of share groups and to share coordinators, and the text for a range."""


def _of_records(records: Decoded) -> str:
    found = records["batches"]
    if not found:
        return ""
    count = sum(batch["count"] for batch in found)
    first, last = found[0], found[-1]
    text = f"{count} record{'s' if count != 1 else ''}"
    if first["base_sequence"] >= 0 and len(found) == 1:
        text += f" seq {first['base_sequence']}-{last['last_sequence']} pid={first['producer_id']}/{first['producer_epoch']}"
    elif len(found) > 1 or first["base_offset"] > 0:
        text += f" @{first['base_offset']}-{last['last_offset']}"
    return f"[{text}]"


def _error_text(at: ErrorAt) -> str:
    topic, index, error = at
    if topic is None:
        return error
    return f"{topic}:{error}" if index is None else f"{topic}-{index}:{error}"


def errors_in(part: Any, topic: str | None = None) -> Iterator[ErrorAt]:
    """Each error in a part of a message: ``("orders", 0, "NOT_ENOUGH_REPLICAS")``.

    ``topic``: the topic that contains the part, or None.
    """
    if isinstance(part, list):
        for each in part:
            yield from errors_in(each, topic)
    elif isinstance(part, dict):
        inner = _topic_of(part) or topic
        index = _first(part, _INDEX_KEYS)
        for name, value in part.items():
            if name.endswith("error_code") and value:
                error = part[name.removesuffix("_code")]
                yield inner, index if isinstance(index, int) else None, error
        for value in part.values():
            if isinstance(value, list | dict):
                yield from errors_in(value, inner)


def _shortened(words: Iterable[str], limit: int) -> list[str]:
    found = list(dict.fromkeys(words))
    if len(found) <= limit:
        return found
    return [*found[:limit], f"+{len(found) - limit}"]
