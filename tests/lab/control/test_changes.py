"""Changes that the control port makes to transactions, records, topics and groups by sending Kafka requests."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer

from tests.lab.control.conftest import Caller, OpenControl, hang

RECORDS = "/v1/topics/orders/records"
CONFIGS = "/v1/topics/orders/configs"
GROUP = "/v1/groups/workers/offsets"


async def open_one(caller: Caller, transactional_id: str = "payments", value: str = "v") -> Any:
    return await caller.post(
        RECORDS, {"partition": 0, "value": value, "transactional_id": transactional_id, "end": "none"}
    )


async def read(caller: Caller, query: str = "") -> list[tuple[str, str | None]]:
    """(value, outcome) of the records in orders-0, including those that read_committed consumers do not see."""
    answer = await caller.get(f"{RECORDS}?isolation=read_uncommitted{query}")
    return [(each["value"], each["outcome"]) for each in answer["records"]]


async def state(caller: Caller, transactional_id: str = "payments") -> str:
    found = (await caller.get("/v1/transactions"))["transactions"]
    return next(each["state"] for each in found if each["transactional_id"] == transactional_id)


async def ended(caller: Caller, transactional_id: str = "payments") -> str:
    path = f"/v1/transactions/{transactional_id}/wait?state=CompleteCommit,CompleteAbort"
    return (await caller.get(path))["transaction"]["state"]


# -- records --------------------------------------------------------------------------------------------------------


async def test_records_are_written_on_their_own_and_in_transactions(caller: Caller) -> None:
    body: dict[str, Any] = {"partition": 0, "key": "k", "headers": [["h", "1"], ["n", None]]}
    plain = await caller.post(RECORDS, {**body, "value": "plain"})
    assert (plain["partition"], plain["offset"], plain["producer_id"]) == (0, 0, -1)
    for end, transactional_id in (("commit", "a"), ("abort", "b"), ("none", "c")):
        await caller.post(RECORDS, {**body, "value": end, "transactional_id": transactional_id, "end": end})
    assert [await ended(caller, each) for each in "ab"] == ["CompleteCommit", "CompleteAbort"]
    expected = [("plain", None), ("commit", "committed"), ("abort", "aborted"), ("none", "open")]
    assert await read(caller) == expected
    (first, *_) = (await caller.get(RECORDS))["records"]
    assert (first["key"], first["headers"]) == ("k", [["h", "1"], ["n", None]])


async def test_a_key_chooses_the_partition_as_a_producer_does(caller: Caller) -> None:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for key in ("a", "bb", "ccc"):
            sent = await producer.send_and_wait("orders", key=key.encode())
            assert (await caller.post(RECORDS, {"key": key}))["partition"] == sent.partition
    assert (await caller.post(RECORDS, {"value": "no key"}))["partition"] == 0


async def test_an_id_that_was_left_open_is_written_with_again(caller: Caller) -> None:
    first = await open_one(caller, value="left")
    again = {"partition": 0, "value": "again", "transactional_id": "payments", "end": "commit"}
    second = await caller.post(RECORDS, again)
    assert second["producer_epoch"] > first["producer_epoch"]
    assert await ended(caller) == "CompleteCommit"
    assert await read(caller) == [("left", "aborted"), ("again", "committed")]


async def test_a_rule_that_keeps_an_id_from_being_written_with_is_named(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_one(caller)
    rule = await caller.post("/v1/faults", {"rule": "txn.marker -> hold"})
    await caller.post("/v1/transactions/payments/abort")
    await caller.get(f"/v1/faults/{rule['id']}/wait?hits=1")
    monkeypatch.setattr("lab.control.node_requests.ANSWER_S_MAX", 0.05)
    status, answer = await caller("POST", RECORDS, {"transactional_id": "payments", "value": "v"})
    words = "CONCURRENT_TRANSACTIONS (its transaction before this one is still being ended: rule 1 holds txn.marker)"
    assert (status, answer["error"]) == (409, f"transactional id payments: {words}")


async def test_what_cannot_be_written_is_a_sentence(caller: Caller) -> None:
    await open_one(caller)
    for path, body, status, words in (
        (RECORDS, {"partition": 9}, 404, "there is no partition orders-9"),
        ("/v1/topics/gone/records", {}, 404, "there is no topic gone"),
        ("/v1/topics/ordres/records", {}, 404, "there is no topic ordres; did you mean orders?"),
        (RECORDS, {"value": "v", "end": "abort"}, 400, "end abort needs a transactional_id"),
        (RECORDS, {"value": "v", "end": "commit"}, 400, "end commit needs a transactional_id"),
        (GROUP, {"topic": "ordres", "to": 0}, 404, "there is no topic ordres; did you mean orders?"),
        (CONFIGS, {"set": {"retention.ms": "x"}}, 400, "INVALID_CONFIG"),
        (CONFIGS, {"set": {"no.such": "1"}}, 400, "INVALID_CONFIG"),
        (
            CONFIGS,
            {"delete": ["retention.m"]},
            400,
            "there is no setting retention.m; did you mean retention.ms?",
        ),
        ("/v1/topics/ordres/configs", {"delete": ["retention.ms"]}, 404, "did you mean orders?"),
        ("/v1/topics/__transaction_state/records", {"value": "v"}, 409, "INVALID_TOPIC_EXCEPTION"),
    ):
        answered, answer = await caller("POST", path, body)
        assert answered == status, answer
        assert words in answer["error"]


async def test_records_are_found_by_key_header_text_and_time(caller: Caller) -> None:
    for number, (key, value, header) in enumerate(
        [("1", "Paid", "till"), ("2", "open", "shop"), ("1", "refunded", "shop")]
    ):
        body = {"partition": 0, "key": key, "value": value, "headers": [["source", header]]}
        assert (await caller.post(RECORDS, body))["offset"] == number
    for query, expected in (
        ("key=1", ["Paid", "refunded"]),
        ("key=1&contains=PAID", ["Paid"]),
        ("contains=shop", ["open", "refunded"]),
        ("header=source", ["Paid", "open", "refunded"]),
        ("header=source%3Dtill", ["Paid"]),
        ("header=sour", []),
        ("contains=none", []),
        ("time_ms=0", ["Paid", "open", "refunded"]),
        ("time_ms=9999999999999", []),
    ):
        answer = await caller.get(f"{RECORDS}?{query}")
        assert [each["value"] for each in answer["records"]] == expected, query
        assert answer["next_offset"] == answer["end_offset"] == 3
    middle = (await caller.get(RECORDS))["records"][1]["timestamp_ms"]
    found = (await caller.get(f"{RECORDS}?time_ms={middle}&limit=1"))["records"]
    assert [each["timestamp_ms"] for each in found] == [middle]


# -- transactions ---------------------------------------------------------------------------------------------------


async def test_an_open_transaction_is_aborted_and_its_producer_fenced(caller: Caller) -> None:
    written = await open_one(caller)
    answer = await caller.post("/v1/transactions/payments/abort")
    assert answer["state"] in ("PrepareAbort", "CompleteAbort")
    assert answer["producer_epoch"] > written["producer_epoch"]
    assert await ended(caller) == "CompleteAbort"
    assert await read(caller) == [("v", "aborted")]


async def test_what_is_not_open_is_not_aborted(caller: Caller) -> None:
    assert (await caller("POST", "/v1/transactions/gone/abort"))[0] == 404
    await caller.post(RECORDS, {"value": "v", "transactional_id": "payments"})
    await ended(caller)
    status, answer = await caller("POST", "/v1/transactions/payments/abort")
    assert (status, answer["error"]) == (409, "payments has no open transaction: its state is CompleteCommit")


async def test_a_held_marker_leaves_the_abort_decided(caller: Caller) -> None:
    await open_one(caller)
    await caller.post("/v1/faults", {"rule": "txn.marker -> hold"})
    assert (await caller.post("/v1/transactions/payments/abort"))["state"] == "PrepareAbort"
    assert await read(caller) == [("v", "open")]


async def test_a_hanging_transaction_is_aborted_in_its_partition(caller: Caller) -> None:
    producer_id = await hang(caller)
    assert (await caller.get("/v1/views/transactions"))["by_state"] == {"Hanging": 1}
    answer = await caller.post("/v1/partitions/orders/0/abort", {"producer_id": producer_id})
    assert (answer["last_stable_offset"], answer["high_watermark"]) == (2, 2)
    assert await read(caller) == [("v", "aborted")]
    status, answer = await caller("POST", "/v1/partitions/orders/0/abort", {"producer_id": producer_id})
    assert (status, answer["error"]) == (404, f"producer {producer_id} has no open transaction in orders-0")


async def test_a_transaction_of_a_coordinator_does_not_hang(caller: Caller) -> None:
    producer_id = (await open_one(caller))["producer_id"]
    status, answer = await caller("POST", "/v1/partitions/orders/0/abort", {"producer_id": producer_id})
    assert (status, "abort it by its transactional id" in answer["error"]) == (409, True)
    assert await state(caller) == "Ongoing"


async def test_a_paused_node_is_asked_nothing(caller: Caller) -> None:
    await open_one(caller)
    await caller.post("/v1/nodes/1/pause")
    status, answer = await caller("POST", "/v1/transactions/payments/abort")
    assert (status, answer["error"]) == (409, "node 1 is paused")


async def test_a_node_that_does_not_answer_is_named(
    open_control: OpenControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.control.node_requests.ANSWER_S_MAX", 0.02)
    caller = await open_control(nodes=2)
    # With acks=all the leader waits for the follower, which the rule cuts off.
    await caller.post("/v1/faults", {"rule": "cut 1 2"})
    status, answer = await caller("POST", RECORDS, {"partition": 0, "value": "v"})
    assert status == 409
    assert "has not responded for 0.02 s, and may still execute the request" in answer["error"]


# -- topics and groups ----------------------------------------------------------------------------------------------


async def test_the_settings_of_a_topic_are_shown_and_changed(caller: Caller) -> None:
    path = "/v1/topics/orders/configs"

    def shown(answer: Any) -> tuple[str, str]:
        (found,) = (each for each in answer["configs"] if each["name"] == "retention.ms")
        assert found["documentation"]
        return found["value"], found["source"]

    assert shown(await caller.get(path)) == ("604800000", "default")
    assert shown(await caller.post(path, {"set": {"retention.ms": "1000"}})) == ("1000", "topic")
    assert shown(await caller.post(path, {"delete": ["retention.ms"]})) == ("604800000", "default")
    assert (await caller("POST", path, {}))[0] == 400
    status, answer = await caller("GET", "/v1/topics/ordres/configs")
    assert (status, answer["error"]) == (404, "there is no topic ordres; did you mean orders?")


async def test_the_offsets_of_a_group_are_reset(caller: Caller) -> None:
    for _ in range(3):
        await caller.post(RECORDS, {"partition": 0, "value": "v"})
    targets: list[tuple[dict[str, Any], int]] = [
        ({"to": "earliest"}, 0),
        ({"to": 2}, 2),
        ({"to": "latest"}, 3),
        ({"time_ms": 0}, 0),
        ({"time_ms": 9999999999999}, 3),
    ]
    for to, expected in targets:
        answer = await caller.post("/v1/groups/workers/offsets", {"topic": "orders", "partition": 0, **to})
        (offset,) = answer["summary"]["offsets"]
        assert (offset["committed"], offset["lag"], answer["clamped"]) == (expected, 3 - expected, []), to
    answer = await caller.post(GROUP, {"topic": "orders", "partition": 0, "to": 99})
    assert answer["summary"]["offsets"][0]["committed"] == 3
    assert answer["clamped"] == [{"partition": 0, "asked": 99, "committed": 3}]
    answer = await caller.post("/v1/groups/all/offsets", {"topic": "orders", "to": "latest"})
    assert [each["committed"] for each in answer["summary"]["offsets"]] == [3, 0, 0, 0]


async def test_members_are_shown_and_a_group_with_members_is_not_reset(caller: Caller) -> None:
    for protocol in ("classic", "consumer"):
        await check_members(caller, protocol)


async def check_members(caller: Caller, protocol: str) -> None:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": protocol,
            "client.id": "<b>worker</b>",
            "group.protocol": protocol,
            "log_level": 0,
        }
    )
    assigned: list[Any] = []
    consumer.subscribe(["orders"], on_assign=lambda _, partitions: assigned.extend(partitions))
    while not assigned:
        await asyncio.to_thread(consumer.poll, 0.05)
    (member,) = (await caller.get(f"/v1/groups/{protocol}"))["members"]
    assert member["client_id"] == "<b>worker</b>"
    assert member["host"] == "/127.0.0.1"
    assert sorted(member["assignment"]) == [f"orders-{index}" for index in range(4)]
    body = {"topic": "orders", "to": "earliest"}
    status, answer = await caller("POST", f"/v1/groups/{protocol}/offsets", body)
    assert (status, answer["error"]) == (409, f"the group {protocol} has members: stop them first")
    await asyncio.to_thread(consumer.close)


async def test_an_unknown_group_is_not_found(caller: Caller) -> None:
    for method, path, body in (
        ("GET", "/v1/groups/gone", None),
        ("POST", "/v1/groups/g/offsets", {"topic": "gone", "to": "latest"}),
        ("POST", "/v1/groups/g/offsets", {"topic": "orders", "partition": 9, "to": "latest"}),
    ):
        assert (await caller(method, path, body))[0] == 404, path
    assert (await caller("POST", "/v1/groups/g/offsets", {"topic": "orders"}))[0] == 400
