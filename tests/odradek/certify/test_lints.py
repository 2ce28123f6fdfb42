"""Each lint finds its mistake, and finds nothing in the trace of a correct job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.certify.lints import DOCS, Evidence, causes, changing_ids, lint
from odradek.certify.lints.evidence import SERVICES_DOCS
from tests.odradek.certify.traces import end, entry, fetch, init, offsets, produce, trace, transaction

ROOT: Final = Path(__file__).parents[3]
Entries = list[Any]


def names(*entries: Any) -> list[str]:
    return [each.name for each in lint(seen(*entries))]


def seen(*entries: Any) -> Evidence:
    return Evidence(trace(*entries), frozenset({"in"}), frozenset({"out", "journal"}))


RIGHT: Entries = [
    init("a"),
    fetch("in"),
    transaction("a", 5),
    fetch("in", offset=7),
    transaction("a", 9, committed=False),
    fetch("in", offset=5),
    transaction("a", 12),
]

FENCED = "PRODUCER_FENCED"
DENIED = "TOPIC_AUTHORIZATION_FAILED"
LOST = {"outcome": "answer_lost"}


def of(peer: str, *entries: Any) -> Entries:
    """Copies of the entries, sent on the connection ``peer``."""
    return [each | {"peer": peer} for each in entries]


READ_ON: Entries = [init("a"), fetch("in"), transaction("a", 5), fetch("in", offset=9)]
"""Trace in which a transaction is committed and the consumer continues to read."""


def test_a_client_that_has_forgotten_its_member_is_told_when_to_ask() -> None:
    joins = entry("JoinGroup", {"group_id": "g"})
    never, once = (
        [joins, *named, offsets("in", 9, tx="a", member="")] for named in ([], [offsets("in", 5, tx="a")])
    )
    told = [
        next(each.sentence for each in lint(seen(*entries)) if each.name == "no-group-metadata")
        for entries in (never, once)
    ]
    assert ["when the records were read" in each for each in told] == [False, True]


def test_a_correct_job_has_no_lints() -> None:
    assert names(*RIGHT) == []


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        (
            # The commit was handled, its response lost, and a new producer writes the same batch again.
            "new-producer-same-batch",
            [init("a"), *transaction("a", 5)[:2], end("a") | LOST, init("a"), *transaction("a", 5)],
        ),
        ("delivery-ignored", [offsets("in", 1), produce("out", error="INVALID_RECORD"), offsets("in", 5)]),
        (
            "delivery-ignored",
            [offsets("in", 1), produce("out") | {"outcome": "unanswered"}, offsets("in", 5)],
        ),
        (
            "abort-missing",
            [
                init("a"),
                produce("out", tx="a"),
                offsets("in", 5, tx="a", error="ILLEGAL_GENERATION"),
                end("a"),
            ],
        ),
        (
            "abort-missing",
            [
                init("a"),
                fetch("in"),
                produce("out", tx="a", error=DENIED),
                *(fetch("in", offset=9) for _ in range(3)),
            ],
        ),
        ("outputs-without-positions", [init("a"), *transaction("a", 5), produce("out", tx="a"), end("a")]),
        (
            "outputs-without-positions",
            [init("a"), produce("out", tx="a"), end("a"), offsets("in", 5, tx="a"), end("a")],
        ),
        ("position-back", [offsets("in", 5), offsets("in", 3)]),
        ("position-back", [init("a"), *transaction("a", 5), *transaction("a", 3)]),
        ("revoked-batch", [produce("out"), offsets("in", 5, error="ILLEGAL_GENERATION")]),
        (
            # One producer after the other: both have a consumer whose offsets are in its transactions.
            "shared-id",
            [
                *of("h:1", init("a"), fetch("in"), *transaction("a", 5)),
                *of("h:2", init("a"), fetch("in", offset=5), *transaction("a", 9)),
                *of("h:1", *(fetch("in", offset=9) for _ in range(3))),
            ],
        ),
        ("offsets-outside", [init("a"), produce("out", tx="a"), end("a"), offsets("in", 5)]),
        ("offsets-outside", [produce("out"), offsets("in", 5)]),
        ("auto-commit", [init("a"), *(offsets("in", at, at_ms=5000.0 * at) for at in range(1, 5))]),
        ("read-uncommitted", [fetch("in", isolation=0)]),
        ("no-group-metadata", [entry("JoinGroup", {"group_id": "g"}), offsets("in", 5, tx="a", member="")]),
        ("weak-producer", [init("a"), produce("journal", producer=(-1, -1))]),
        ("weak-producer", [produce("out", acks=1)]),
        ("second-producer", [init("a"), produce("journal")]),
        (
            "no-rewind",
            [
                init("a"),
                fetch("in"),
                transaction("a", 5),
                fetch("in", offset=9),
                end("a", committed=False),
                fetch("in", offset=9),
            ],
        ),
        (
            # A new producer replaced the one that failed.
            "no-rewind",
            [*READ_ON, produce("out", tx="a") | {"outcome": "unanswered"}, init("a"), fetch("in", offset=9)],
        ),
        (
            # The transaction was still empty, so the client sends no EndTxn.
            "no-rewind",
            [
                *READ_ON,
                entry("AddOffsetsToTxn", tx="a", error="GROUP_AUTHORIZATION_FAILED"),
                fetch("in", offset=9),
            ],
        ),
        (
            "send-not-awaited",
            [
                init("a"),
                produce("out", tx="a") | {"answer": {"error": "TOPIC_AUTHORIZATION_FAILED"}},
                end("a"),
            ],
        ),
        (
            # All records came in one Fetch response.
            "no-rewind",
            [init("a"), fetch("in"), transaction("a", 5, committed=False), transaction("a", 9)],
        ),
        (
            "fatal-error-swallowed",
            [init("a"), end("a", error="PRODUCER_FENCED"), *(fetch("in", offset=at) for at in range(3))],
        ),
        (
            "shared-id",
            [
                init("a", peer="h:1"),
                init("a", peer="h:2"),
                end("a", error="PRODUCER_FENCED") | {"peer": "h:1"},
            ],
        ),
        (
            "short-time-out",
            [
                init("a", timeout_ms=1000),
                entry("AddPartitionsToTxn", tx="a", at_ms=0.0),
                end("a", at_ms=700.0),
            ],
        ),
        (
            "streams-at-least-once",
            [entry("Produce", dict(produce("out")["request"]), client_id="x-StreamThread-1-producer")],
        ),
    ],
)
def test_each_lint_sees_what_it_is_for(name: str, entries: Entries) -> None:
    assert name in names(*entries)


def test_a_new_producer_after_a_fatal_error_is_no_mistake() -> None:
    fenced = [init("a"), end("a", error="PRODUCER_FENCED")]
    assert names(*fenced, init("a"), *(fetch("in", offset=at) for at in range(3))) == []


def test_fetching_the_offset_again_after_an_abort_is_no_mistake() -> None:
    assert (
        names(
            *READ_ON,
            end("a", committed=False),
            fetch("in", offset=9),
            fetch("in", offset=5),
            fetch("in", offset=9),
        )
        == []
    )


def start(number: int, offset: int) -> Entries:
    """Trace entries of the start of process ``number``, which reads from this offset on."""
    consumer = fetch("in", offset=offset) | {"peer": f"h:{number}1"}
    asks = [entry("ApiVersions", peer=f"h:{number}{connection}") for connection in (0, 1)]
    return [*asks, init("a", peer=f"h:{number}0"), consumer]


BEGUN: Entries = [*start(1, 0), offsets("in", 5)]


def test_a_start_behind_the_committed_position() -> None:
    assert "reported-early" in names(*BEGUN, *start(2, 9))
    assert "reported-early" not in names(*BEGUN, *start(2, 5))


def test_a_consumer_that_reconnects_continues_at_its_position() -> None:
    assert "reported-early" not in names(*BEGUN, *start(2, 5), fetch("in", offset=9) | {"peer": "h:22"})


def test_an_offset_outside_of_groups_is_not_reported_early() -> None:
    assert names(*start(1, 0), transaction_of_results(), *start(2, 9)) == []


def test_a_new_producer_is_not_a_start_of_the_job() -> None:
    assert "reported-early" not in names(
        *BEGUN, init("a", peer="h:20"), fetch("in", offset=9) | {"peer": "h:11"}
    )


def transaction_of_results() -> Entries:
    return [produce("out", tx="a"), end("a")]


def test_an_abort_of_one_instance_does_not_concern_another_one() -> None:
    theirs = [init("b"), produce("out", tx="b"), end("b", committed=False)]
    assert names(*READ_ON, *theirs, fetch("in", offset=9), transaction("a", 9)) == []


def test_a_consumer_that_reads_before_the_producer_begins_is_right() -> None:
    assert (
        names(fetch("in"), fetch("in", offset=9), init("a"), fetch("in", offset=9), transaction("a", 9)) == []
    )


def test_offsets_that_are_in_no_transaction_are_stored_elsewhere() -> None:
    results = [produce("out", tx="a"), end("a")]
    again = [init("a"), fetch("in", offset=9), produce("out", tx="a"), end("a")]
    assert (
        names(init("a"), fetch("in"), *results, fetch("in", offset=9), *again, fetch("in", offset=12)) == []
    )


def test_timestamps_after_an_advance_of_the_clock_are_ignored() -> None:
    timed = trace(
        init("a", timeout_ms=1000), entry("AddPartitionsToTxn", tx="a", at_ms=0.0), end("a", at_ms=700.0)
    )
    assert lint(Evidence(timed, frozenset({"in"}), frozenset({"out"}), has_times=False)) == []


def test_records_that_are_tried_again_need_no_fetch() -> None:
    assert (
        names(*READ_ON, transaction("a", 9, committed=False), fetch("in", offset=12), transaction("a", 9))
        == []
    )


def test_offsets_of_a_group_without_members_need_no_generation() -> None:
    assert (
        names(init("a"), fetch("in"), produce("out", tx="a"), offsets("in", 5, tx="a", member=""), end("a"))
        == []
    )


def positions_of(tx: str, partition: int) -> dict[str, Any]:
    sent = offsets("in", 5, tx=tx, member="")
    sent["request"]["topics"][0]["partitions"][0]["partition_index"] = partition
    return sent


def test_an_id_for_each_partition_needs_no_generation() -> None:
    joins = entry("JoinGroup", {"group_id": "g"})
    for ids, expected in (
        (("copier-in-0", "copier-in-1"), []),
        (("copier-1", "copier-2"), ["no-group-metadata"]),
        (("copier-0", "copier-0"), ["no-group-metadata"]),
    ):
        assert names(joins, *(positions_of(each, number) for number, each in enumerate(ids))) == expected


def test_spark_is_known_by_its_groups() -> None:
    assert "spark-sink" in names(entry("OffsetFetch", {"group_id": "spark-kafka-source-1"}), produce("out"))


def test_flink_stores_its_offsets_in_checkpoints() -> None:
    enumerator = entry("Metadata", client_id="copier-enumerator-admin-client")
    one, two = ([enumerator, init(f"copier-0-{each}"), fetch("in"), offsets("in", 5)] for each in (1, 2))
    assert names(*one) == []
    assert list(changing_ids(seen(*one), seen(*two))) == []


def test_a_group_without_members_has_no_generation_to_name() -> None:
    assert names(init("a"), offsets("in", 5, tx="a", member="")) == []


def test_other_topics_are_ignored() -> None:
    assert (
        names(fetch("lookup", isolation=0), offsets("lookup", 5), produce("elsewhere", producer=(-1, -1)))
        == []
    )


def test_an_id_that_is_another_one_at_each_start() -> None:
    (found,) = changing_ids(seen(init("a-1")), seen(init("a-2")))
    assert found.name == "changing-id"
    assert list(changing_ids(seen(init("a")), seen(init("a")))) == []


def test_kafka_streams_chooses_its_ids_itself() -> None:
    one, two = (init(f"app-{number}") | {"client_id": "app-StreamThread-1-producer"} for number in (1, 2))
    assert list(changing_ids(seen(one), seen(two))) == []


def test_a_lint_says_where_it_is_explained() -> None:
    assert lint(seen(fetch("in", isolation=0)))[0].link == "docs/certify.md#read-uncommitted"


# -- correct jobs with similar traces ----------------------------------------------------------------------------------

ONE, TWO = "h:1", "h:2"
FROZEN: Entries = [fetch("in", offset=9) for _ in range(3)]


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(
            [
                *of(ONE, init("a"), fetch("in"), *transaction("a", 5)),
                *of(TWO, init("a"), fetch("in", offset=5)),
            ],
            id="a start behind a kill",
        ),
        pytest.param(
            [
                *of(ONE, init("a"), end("a", error=FENCED)),
                *of(TWO, init("a"), produce("out", tx="a"), end("a")),
            ],
            id="a process that makes a new producer",
        ),
        pytest.param(
            [
                *of(ONE, init("a"), produce("out", tx="a")),
                *of(TWO, init("a", raises=7)),
                *of(ONE, produce("out", tx="a", producer=(7, 1)), end("a", producer=(7, 1))),
            ],
            id="a client that raises its epoch on another connection",
        ),
        pytest.param(
            [
                *of(ONE, init("a"), fetch("in"), *transaction("a", 5)),
                *of(TWO, init("b"), fetch("in", offset=5), *transaction("b", 9)),
                *of(ONE, *(fetch("in", offset=9) for _ in range(3))),
            ],
            id="two instances with an id each",
        ),
    ],
)
def test_no_id_is_shared(entries: Entries) -> None:
    assert "shared-id" not in names(*entries)


def test_another_instance_lives_on_when_one_is_fenced() -> None:
    """``fatal-error-swallowed`` does not report an instance that was fenced and ended, if only others continue."""
    both = [
        *of(ONE, init("a"), fetch("in"), *transaction("a", 5)),
        *of(TWO, init("b"), fetch("in", offset=5), *transaction("b", 9)),
    ]
    fenced = of(ONE, end("a", error=FENCED))
    assert "fatal-error-swallowed" not in names(*both, *fenced, *of(TWO, *FROZEN))
    assert "fatal-error-swallowed" in names(*both, *fenced, *of(ONE, *FROZEN))


def test_another_instance_continues_after_an_abort() -> None:
    """``no-rewind`` does not report an aborted transaction if another instance continues with the partition.

    The partition was assigned to that instance before the abort.
    """
    assert "no-rewind" not in names(
        *of(
            ONE, init("a"), fetch("in"), *transaction("a", 5), fetch("in", offset=9), *transaction("a", 9)[:2]
        ),
        *of(TWO, init("b"), fetch("in", offset=5)),
        *of(ONE, end("a", committed=False)),
        *of(TWO, fetch("in", offset=9), *transaction("b", 9)),
    )


def test_a_partition_of_another_instance_is_no_matter_of_an_abort() -> None:
    theirs = of(TWO, init("b"), fetch("in", offset=9))
    ours = of(ONE, init("a"), produce("out", tx="a"), end("a", committed=False))
    assert "no-rewind" not in names(
        *ours, *theirs, *ours, *of(TWO, fetch("in", offset=12), *transaction("b", 12))
    )


def test_a_commit_with_a_lost_response_counts_as_a_commit() -> None:
    lost = [*transaction("a", 5)[:2], end("a") | LOST]
    assert names(init("a"), fetch("in"), *lost, fetch("in", offset=9), end("a"), *transaction("a", 9)) == []


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(
            [init("a"), entry("OffsetFetch", {"group_id": "g"}), *transaction("a", 5)], id="it asks"
        ),
        pytest.param([init("a"), *transaction("a", 9)], id="it goes on"),
        pytest.param([end("a"), *transaction("a", 9)], id="the client asks again"),
    ],
)
def test_a_batch_that_is_not_written_again(between: Entries) -> None:
    lost = [init("a"), *transaction("a", 5)[:2], end("a") | LOST]
    assert "new-producer-same-batch" not in names(*lost, *between)


def test_retrying_a_commit_that_was_not_handled_is_no_mistake() -> None:
    lost = [init("a"), *transaction("a", 5)[:2], end("a") | {"outcome": "unanswered"}]
    assert "new-producer-same-batch" not in names(*lost, init("a"), *transaction("a", 5))


REFUSED = produce("out", error="INVALID_RECORD", at_ms=7.0, count=3)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(
            [REFUSED, produce("out", at_ms=7.0, count=3), offsets("in", 5)], id="the client sends it again"
        ),
        pytest.param(
            [REFUSED, produce("out", at_ms=9.0, count=3), offsets("in", 5)], id="the job sends it again"
        ),
        pytest.param(
            [fetch("in", count=5), REFUSED, fetch("in", count=5), offsets("in", 5)], id="it is read again"
        ),
        pytest.param([REFUSED, *of(TWO, offsets("in", 5))], id="a new process commits"),
        pytest.param(
            [offsets("in", 2, member="other"), REFUSED, offsets("in", 5, member="other"), offsets("in", 5)],
            id="another member commits",
        ),
    ],
)
def test_a_delivery_that_is_not_ignored(entries: Entries) -> None:
    assert "delivery-ignored" not in names(offsets("in", 1), *entries)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([end("a", committed=False), *FROZEN], id="an abort"),
        pytest.param([init("a"), *FROZEN], id="a new producer"),
        pytest.param(
            [produce("out", tx="a"), *FROZEN], id="the next transaction: the first had nothing to abort"
        ),
        pytest.param([*of(TWO, *FROZEN)], id="a new process"),
    ],
)
def test_no_abort_is_reported_as_missing(entries: Entries) -> None:
    refused = [init("a"), fetch("in"), entry("AddPartitionsToTxn", tx="a", error=DENIED)]
    assert "abort-missing" not in names(*refused, *entries)


def test_outputs_alone_are_right_where_no_transaction_has_positions() -> None:
    assert names(init("a"), produce("out", tx="a"), end("a"), produce("out", tx="a"), end("a")) == []


def test_an_offset_that_is_committed_twice_does_not_go_back() -> None:
    assert "position-back" not in names(offsets("in", 5), offsets("in", 5), offsets("in", 6))
    other = offsets("in", 3, group="other")
    assert "position-back" not in names(offsets("in", 5), other), "another group has positions of its own"


def test_a_commit_that_is_refused_before_any_write_is_no_mistake() -> None:
    assert "revoked-batch" not in names(offsets("in", 5, error="ILLEGAL_GENERATION"), produce("out"))
    in_transaction = [init("a"), produce("out", tx="a"), offsets("in", 5, tx="a", error="ILLEGAL_GENERATION")]
    assert "revoked-batch" not in names(*in_transaction, end("a", committed=False))


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([offsets("in", 5, at_ms=1500.0)], id="a run of one second"),
        pytest.param([offsets("in", at, at_ms=1000.0 * at) for at in (1, 2)], id="two commits"),
        pytest.param(
            [
                each
                for at in range(1, 6)
                for each in (produce("out", at_ms=1000.0 * at), offsets("in", at, at_ms=1000.0 * at + 9))
            ],
            id="a program that commits its work of each second",
        ),
        pytest.param(
            [offsets("in", at, at_ms=70.0 * at**3) for at in range(1, 6)], id="commits as they come"
        ),
    ],
)
def test_commits_of_a_program_are_not_called_automatic(entries: Entries) -> None:
    assert "offsets-outside" in names(*entries)
    assert "auto-commit" not in names(*entries)


def test_of_a_commit_that_may_be_automatic_the_option_is_named() -> None:
    alone, behind = offsets("in", 5, at_ms=900.0), offsets("in", 5, at_ms=103.0)
    told = [lint(seen(produce("out", at_ms=100.0), each))[0].sentence for each in (alone, behind)]
    assert ["enable.auto.commit" in each for each in told] == [True, False]


def test_an_offset_that_is_also_in_the_transaction_has_no_effect() -> None:
    right = [init("a"), fetch("in"), *transaction("a", 5)]
    assert names(*right, offsets("in", 5)) == []
    assert "offsets-outside" in names(*right, offsets("in", 9))


def test_a_second_producer_is_not_a_weak_one() -> None:
    weak, second = produce("journal", producer=(-1, -1)), produce("journal")
    assert names(init("a"), weak) == ["weak-producer"]
    assert names(init("a"), second) == ["second-producer"]
    assert names(second) == [], "an idempotent producer alone is neither"


def test_a_consumer_may_reconnect_while_another_instance_runs() -> None:
    both = [*start(1, 0), *of("h:20", init("b")), *of("h:21", fetch("in", offset=7)), offsets("in", 5)]
    late = [*of("h:30", init("c")), *of("h:31", fetch("in", offset=7))]
    assert "reported-early" not in names(*both, *late)


def test_each_lint_has_a_section_in_the_docs() -> None:
    told = {
        name
        for page in (DOCS, SERVICES_DOCS)
        for name in re.findall(r"^### (\S+)$", (ROOT / page).read_text(), re.MULTILINE)
    }
    rooms = Path(causes.__file__).parent.glob("*.py")
    found = {
        name
        for each in rooms
        for name in re.findall(r'^ +(?:name = )?"([a-z]+(?:-[a-z]+)+)",?$', each.read_text(), re.M)
    }
    assert len(found) > 20
    assert found <= told, found - told
