"""The JavaScript functions of the control page: which events, outcomes, rules and colours it shows."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.control.page import FOLDER

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def call() -> Iterator[Call]:
    """A function that calls a function in a JavaScript module of the page: ``call("events.js", "folded", events)``."""
    assert NODE is not None
    script = str(Path(__file__).with_name("javascript.mjs"))
    with subprocess.Popen(
        [NODE, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def call_(file: str, name: str, *args: object) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            asked = {"file": str(FOLDER / file), "name": name, "args": args}
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert "error" not in answer, answer
            return answer["result"]

        yield call_
        assert process.stdin is not None
        process.stdin.close()


def event(kind: str, transaction: int | None = None, **more: Any) -> dict[str, object]:
    return {"kind": kind, "transaction": transaction, "time_ms": 0, **more}


HIT = event("rule", text="rule 1 is hit", node=1)


def test_a_timeline_shows_its_transaction_and_not_what_was_before_it(call: Call) -> None:
    events = [HIT, event("state", 1), HIT, event("state", 1), HIT, HIT, event("state", 2), HIT]
    assert call("events.js", "chosen", events, 2) == [event("state", 2), HIT]
    assert call("events.js", "chosen", events, 1) == events[1:6]
    assert call("events.js", "chosen", events, None) == events
    assert call("events.js", "chosen", [HIT], 1) == []


def test_repeats_in_a_row_are_one_step(call: Call) -> None:
    retry = event("exchange", api="AddPartitionsToTxn", client_id="app", node=1, outcome="answered")
    events = [
        retry,
        {**retry, "time_ms": 1},
        {**retry, "time_ms": 9},
        HIT,
        event("batch", 1),
        event("batch", 1),
    ]
    first, *rest = call("events.js", "folded", events)
    assert (first["times"], first["time_ms"], first["until_ms"]) == (3, 0, 9)
    assert rest == events[3:]
    lost = {**retry, "outcome": "answer_lost"}
    assert call("events.js", "folded", [retry, lost]) == [retry, lost]


def test_the_newest_open_transaction_is_shown_first(call: Call) -> None:
    def shown(*verdicts: str) -> int | None:
        each = [{"number": number, "verdict": verdict} for number, verdict in enumerate(verdicts, 1)]
        found = call("events.js", "first", each)
        return None if found is None else int(found["number"])

    assert shown("committed", "aborted") == 2
    assert shown("committing", "open", "committed") == 2
    assert shown() is None


def batch(base: int, kind: str = "transactional", producer: int = 1, last: int | None = None) -> list[object]:
    return [base, base if last is None else last, 1, 80, kind, producer, 0, 0, 0, 0]


def outcomes(call: Call, kept: list[list[object]], held: list[list[object]], last_stable: int) -> list[Any]:
    shown, gap = call(
        "batches.js",
        "withHeld",
        *([named(call, each) for each in part] for part in (held, kept)),
        last_stable,
    )
    return [each.get("outcome") for each in call("batches.js", "judge", shown, gap)] + [gap]


def named(call: Call, each: list[object]) -> Any:
    return call("batches.js", "named", each)


def test_the_batch_that_holds_readers_is_shown_however_far_away_it_is(call: Call) -> None:
    held = [batch(5, producer=7), batch(6, producer=8), batch(7, "data", -1)]
    kept = [batch(900, producer=8), batch(901, "commit", 8), batch(902, producer=9)]
    # The outcome of the batch at 6 of producer 8 is unknown: its marker may be among the batches that are not shown.
    expected = ["open", "unknown", "plain", "committed", None, "open", 3]
    assert outcomes(call, kept, held, 5) == expected


def test_no_batch_is_shown_twice_where_nothing_is_missing(call: Call) -> None:
    held = [batch(5, producer=7), batch(6, producer=8), batch(7, producer=8)]
    kept = [batch(7, producer=8), batch(8, "abort", 8)]
    assert outcomes(call, kept, held, 5) == ["open", "aborted", "aborted", None, 0]
    assert outcomes(call, kept, held, 7) == ["aborted", None, 0]
    assert outcomes(call, kept, [], 9) == ["aborted", None, 0]


def fault(**held: Any) -> dict[str, object]:
    each = {"at": "txn.marker", "transactional_id": "payments", "partitions": ["orders-0"], **held}
    return {"id": 3, "text": "txn.marker -> hold", "held": [each]}


def test_the_rule_that_holds_a_transaction_is_named(call: Call) -> None:
    txn = {"transactional_id": "payments", "partitions": ["orders-0", "orders-1"]}
    both = fault()
    both["held"] = [*fault()["held"], *fault(partitions=["orders-1"])["held"]]  # type: ignore[misc]
    expected = {"id": 3, "text": "txn.marker -> hold", "at": "txn.marker", "isSure": True}
    assert call("held.js", "holders", txn, [both]) == [{**expected, "partitions": ["orders-0", "orders-1"]}]
    assert call("held.js", "holders", txn, [fault(transactional_id="other")]) == []
    assert call("held.js", "holders", txn, [fault(transactional_id=None)]) == []
    # One request with the markers of several transactions.
    several = fault(at="WriteTxnMarkers", transactional_id=None, partitions=["orders-1", "x-0"])
    (found,) = call("held.js", "holders", txn, [several])
    assert (found["isSure"], found["partitions"]) == (False, ["orders-1"])


@pytest.mark.parametrize(
    ("line", "outcome", "kind"),
    [
        ("EndTxn v5 #7 tx=MY_ID commit -> ok 0.4 ms", "answered", ""),
        ("EndTxn v5 #7 -> CONCURRENT_TRANSACTIONS 0.4 ms", "answered", "retriable"),
        ("Produce v9 #7 -> orders-0:NOT_LEADER_OR_FOLLOWER +3 0.4 ms", "answered", "retriable"),
        ("Produce v9 #7 -> A_B-0:NOT_LEADER_OR_FOLLOWER A_B-1:CORRUPT_MESSAGE", "answered", "odd"),
        ("EndTxn v5 #7 -> INVALID_PRODUCER_EPOCH 0.4 ms", "answered", "odd"),
        ("EndTxn v5 #7 -> ANSWER LOST by a rule (ok) 0.4 ms", "answer_lost", "odd"),
        ("Fetch v17 #7 -> in progress", "in_progress", ""),
    ],
)
def test_errors_that_a_client_repeats_have_a_colour_of_their_own(
    call: Call, line: str, outcome: str, kind: str
) -> None:
    assert call("exchanges.js", "kindOf", {"line": line, "outcome": outcome}) == kind


# -- messages -------------------------------------------------------------------------------------------------------

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["card", "cash"]}},
        {"name": "lines", "type": {"type": "array", "items": "int"}},
        {"name": "tags", "type": {"type": "map", "values": "boolean"}},
        {"name": "again", "type": ["null", "Kind"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "sum", "type": "double"},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "parent", "type": ["null", "shop.Payment"]},
    ],
}
INNER = b"\x03" + b"\x02\x06abc" + b"\x02" + b"\x04\x02\x03\x00" + b"\x01\x06\x02t\x01\x00" + b"\x02\x00"
INNER += b"\x80\x89\x7a" + bytes.fromhex("000000000000f83f") + b"\xca\xfe" + b"\x00"


def decoded(call: Call, schema: object, data: bytes) -> Any:
    return call("avro.js", "decode", schema, list(data))


def test_avro_is_decoded_by_its_schema(call: Call) -> None:
    expected = {
        "id": -2,
        "to": "abc",
        "kind": "cash",
        "lines": [1, -2],
        "tags": {"t": True},
        "again": "card",
        "at": "1970-01-01T00:16:40.000Z",
        "sum": 1.5,
        "mark": "0xcafe",
        "parent": None,
    }
    assert decoded(call, PAYMENT, INNER) == expected
    # Behind Confluent's zero byte and schema id, and behind the marker and fingerprint of Avro's single-object encoding.
    assert decoded(call, PAYMENT, b"\x00\x00\x00\x00\x07" + INNER) == expected
    assert decoded(call, PAYMENT, b"\xc3\x01" + bytes(8) + INNER) == expected
    nested = INNER[:-1] + b"\x02" + INNER
    assert decoded(call, PAYMENT, nested)["parent"] == expected
    assert decoded(call, "string", b"\x06abc") == "abc"
    # Larger than the integers that a JavaScript number represents exactly.
    assert decoded(call, "long", b"\xfe" + b"\xff" * 8 + b"\x01") == str(2**63 - 1)


@pytest.mark.parametrize(
    ("schema", "data", "word"),
    [
        ("string", b"\x06ab", "ends before"),
        ("string", b"\x06abcd", "1 bytes are left over"),
        ("string", b"\x01", "a length cannot be -1"),
        (["null", "int"], b"\x04", "no branch 2"),
        ("shop.Gone", b"\x00", "no type shop.Gone"),
        ("long", b"\xff" * 10, "longer than ten bytes"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\x00", "elements"),
    ],
)
def test_what_does_not_fit_its_schema_is_a_sentence(
    call: Call, schema: object, data: bytes, word: str
) -> None:
    with pytest.raises(AssertionError, match=word):
        decoded(call, schema, data)


@pytest.mark.parametrize(
    ("text", "base64", "form", "shown", "is_odd"),
    [
        ("grün", None, "text", "grün", False),
        (None, "/wA=", "text", "ff 00", True),
        (None, None, "text", "null", True),
        ("ab", None, "hex", "61 62", False),
        (None, "/wA=", "hex", "ff 00", False),
        ('{"a":[1]}', None, "json", '{\n  "a": [\n    1\n  ]\n}', False),
        ("{", None, "json", "{", True),
        ("no schema", None, "avro", "no schema", True),
    ],
)
def test_a_value_is_shown_as_the_viewer_wants(
    call: Call, text: str | None, base64: str | None, form: str, shown: str, is_odd: bool
) -> None:
    found = call("values.js", "shown", text, base64, form)
    assert (found["text"], found["isOdd"]) == (shown, is_odd)


def test_headers_and_times_are_read_from_their_fields(call: Call) -> None:
    lines = "source=till\n\n empty=\nnull\nsum=a=b"
    expected = [["source", "till"], ["empty", ""], ["null", None], ["sum", "a=b"]]
    assert call("values.js", "headersOf", lines) == expected
    assert call("values.js", "timeOf", "1970-01-01T00:00:02") == 2000
