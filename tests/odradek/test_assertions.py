"""Records and assertions by the control port: correct content passes, and a failed assertion explains the difference."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

import odradek
from tests.support.clients import ConfluentProducer


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(settings={"transaction.max.timeout.ms": 600_000}) as broker:
        yield broker


@pytest.fixture
def topic(broker: odradek.Broker) -> str:
    return broker.create_topic(partitions=2)


def transactions(broker: odradek.Broker, topic: str, *outcomes: tuple[str, str]) -> ConfluentProducer:
    """Write a value in a transaction for each (value, outcome). Outcomes are "commit", "abort" and "open".

    The transactional id is the topic's name. Returns the producer.
    """
    producer = ConfluentProducer(broker.bootstrap_servers, transactional_id=topic)
    producer.init()
    for value, outcome in outcomes:
        producer.begin()
        producer.send(topic, [value])
        if outcome == "commit":
            producer.commit()
        elif outcome == "abort":
            producer.abort()
    return producer


def refusal(call: object, *arguments: object) -> str:
    assert callable(call)
    with pytest.raises(AssertionError) as failure:
        call(*arguments)
    assert isinstance(failure.value, odradek.OdradekError)
    return str(failure.value)


def test_records_are_those_that_consumers_get(broker: odradek.Broker, topic: str):
    transactions(broker, topic, ("a", "commit"), ("b", "abort"), ("c", "commit")).close()
    committed = broker.records(topic)
    assert [(each.value, each.outcome, each.is_transactional) for each in committed] == [
        ("a", "committed", True),
        ("c", "committed", True),
    ]
    everything = {each.value: each.outcome for each in broker.records(topic, "read_uncommitted")}
    assert everything == {"a": "committed", "b": "aborted", "c": "committed"}


def test_many_records_are_read_in_several_calls(broker: odradek.Broker, topic: str):
    values = [f"{number:06}" for number in range(2500)]
    producer = ConfluentProducer(broker.bootstrap_servers, idempotent=False)
    producer.send(topic, values, partition=1)
    producer.close()
    assert [each.value for each in broker.records(topic)] == values
    assert [each.value for each in broker.records(topic, partition=1)] == values
    assert broker.records(topic, partition=0) == []
    broker.assert_exactly_once(topic, reversed(values))


def test_exactly_once_holds(broker: odradek.Broker, topic: str):
    transactions(broker, topic, ("a", "commit"), ("b", "abort"), ("b", "commit")).close()
    broker.assert_exactly_once(topic, ["b", b"a"])
    broker.assert_committed(topic)
    broker.assert_no_open_transactions()


def test_lost_duplicated_and_unexpected_are_listed_with_the_timeline(broker: odradek.Broker, topic: str):
    transactions(
        broker, topic, ("a", "commit"), ("a", "commit"), ("b", "abort"), ("x\x1b", "commit"), ("c", "commit")
    ).close()
    text = refusal(broker.assert_exactly_once, topic, ["a", "b", "c", "d"])
    assert text.startswith(f"{topic}: 2 lost, 1 duplicated, 1 unexpected\n")
    lost, never, duplicated, unexpected, *_ = text.splitlines()[1:]
    assert lost.startswith(f"  lost 'b': {topic}-")
    assert "(aborted, producer " in lost
    assert never == "  lost 'd': not in the log"
    assert duplicated.startswith("  duplicated 'a': ")
    assert duplicated.count("(committed, producer ") == 2
    assert unexpected.startswith(r"  unexpected 'x\x1b': ")
    assert f"transactional id {topic}\n" in text
    assert "ABORT marker" in text


@pytest.mark.parametrize("expected", ["paid", b"paid", 1, None, [1], [("paid",)]])
def test_what_is_no_list_of_values_is_refused(broker: odradek.Broker, topic: str, expected: Any):
    with pytest.raises(
        TypeError, match=r"^(expected must be a list of values, |a record's value is a str, bytes or None)"
    ):
        broker.assert_exactly_once(topic, expected)


def test_a_lost_value_in_a_topic_that_a_misspelt_name_has_created_is_found(broker: odradek.Broker):
    broker.create_topic("invoices", partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("invioces", "due")
    producer.flush()
    assert refusal(broker.assert_exactly_once, "invoices", ["due", "never"]).splitlines()[1:] == [
        "  lost 'due': not in the log; another topic has it: invioces-0 @0",
        "  lost 'never': not in the log",
    ]


def test_a_record_without_a_value_may_be_expected(broker: odradek.Broker, topic: str):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, key="a")
    producer.flush()
    broker.assert_exactly_once(topic, [None])
    assert "unexpected None: " in refusal(broker.assert_exactly_once, topic, ["b"])


def test_a_value_that_is_expected_twice_must_be_there_twice(broker: odradek.Broker, topic: str):
    transactions(broker, topic, ("a", "commit")).close()
    assert f"{topic}: 1 lost, 0 duplicated, 0 unexpected\n" in refusal(
        broker.assert_exactly_once, topic, ["a", "a"]
    )


def test_a_transaction_that_is_open_is_named(broker: odradek.Broker, topic: str):
    producer = transactions(broker, topic, ("a", "commit"), ("b", "open"))
    try:
        assert [each.value for each in broker.records(topic)] == ["a"]
        assert "lost 'b': " in refusal(broker.assert_exactly_once, topic, ["a", "b"])
        assert refusal(broker.assert_committed, topic).startswith(
            f"the last transaction of {topic} is open\n"
        )
        text = refusal(broker.assert_no_open_transactions)
        assert text.startswith(f"1 open transaction:\n  {topic}: Ongoing, {topic}-")
        assert "transaction 2: open" in text
    finally:
        producer.abort()
        producer.close()
    assert "is aborted\n" in refusal(broker.assert_committed, topic)


def test_an_unknown_id_is_no_commit(broker: odradek.Broker):
    assert "no coordinator knows the transactional id 'unknown'" in refusal(
        broker.assert_committed, "unknown"
    )


def test_a_transaction_that_is_decided_is_waited_for(broker: odradek.Broker, topic: str):
    with broker.faults.add(f"txn.marker topic={topic} -> hold") as rule:
        producer = transactions(broker, topic, ("a", "commit"))
        rule.wait()
        with pytest.warns(odradek.RecordsHiddenWarning) as caught:
            assert broker.records(topic, timeout_s=0) == []
        [partition] = {each.partition for each in broker.records(topic, "read_uncommitted", timeout_s=0)}
        held = f"{topic}-{partition} stop at offset 0: rule {rule.id} ({rule.text}) holds the COMMIT marker of {topic}"
        [warning] = caught
        assert (held in str(warning.message), warning.filename) == (True, __file__)
        text = refusal(broker.assert_exactly_once, topic, ["a"], 0)
        assert "not below the last stable offset" in text
        assert held in text
        assert f"Rule {rule.id} ({rule.text}) holds" in refusal(broker.assert_committed, topic, 0)
        [explanation] = broker.explain(topic, partition)
        assert (explanation.subject, explanation.cause) == (f"{topic}-{partition}", "marker-held")
        assert held in str(explanation).splitlines()[0]
        [explanation] = broker.explain(transactional_id=topic)
        assert explanation.cause == "marker-held"
        assert [each.cause for each in broker.explain(group="unknown")] == ["unknown-group"]
        with pytest.raises(odradek.AssertionFailed, match="PrepareCommit"):
            broker.assert_no_open_transactions(timeout_s=0)
        rule.release()
        # The test does not wait for the state in between: the assertion does.
        broker.assert_exactly_once(topic, ["a"])
        producer.close()


def test_a_topic_has_the_name_and_the_settings_that_were_asked_for(broker: odradek.Broker):
    assert broker.create_topic("payments", partitions=3, cleanup_policy="compact") == "payments"
    names = {broker.create_topic(prefix="orders") for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("orders-") for name in names)
    shown = {
        each["name"]: each for each in odradek.connect(broker.control_url).client.get("/v1/topics")["topics"]
    }
    assert len(shown["payments"]["partitions"]) == 3
    with pytest.raises(odradek.ControlRefused, match="payments"):
        broker.create_topic("payments")
    for call in (broker.records, broker.partitions, partial(broker.move_leader, partition=0, to=1)):
        with pytest.raises(odradek.NotFound, match=r"^there is no topic gone$"):
            call("gone")
        with pytest.raises(odradek.NotFound, match=r"^there is no topic paymets; did you mean payments\?$"):
            call("paymets")
