"""The operations on topics: limits, bytes that are not text, hanging transactions."""

from __future__ import annotations

from base64 import b64decode

import aiokafka

from tests.lab.control.conftest import Caller


async def produce(caller: Caller, topic: str, *values: bytes) -> None:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    await producer.start()
    batch = producer.create_batch()
    for value in values:
        batch.append(key=b"key", value=value, timestamp=1, headers=[("h", b"\xff"), ("n", None)])
    await (await producer.send_batch(batch, topic, partition=0))
    await producer.stop()


async def test_a_call_returns_as_many_records_as_were_asked_for_out_of_a_batch(caller: Caller) -> None:
    await produce(caller, "orders", *(b"%d" % number for number in range(10)))
    seen, offset = [], 0
    while True:
        page = await caller.get(f"/v1/topics/orders/records?limit=3&offset={offset}")
        assert page["partitions"] == 4
        assert page["end_offset"] == 10
        assert len(page["records"]) <= 3
        seen += [each["value"] for each in page["records"]]
        if page["next_offset"] == page["end_offset"]:
            break
        offset = page["next_offset"]
    assert seen == [str(number) for number in range(10)]
    status, answer = await caller("GET", "/v1/topics/orders/records?offset=99")
    expected = "orders-0: offset 99 is out of range: the log begins at 0 and ends at 10"
    assert (status, answer["error"]) == (400, expected)


async def test_bytes_that_are_no_text_are_base64(caller: Caller) -> None:
    await produce(caller, "orders", b"\xff\x00", "grün".encode())
    binary, text = (await caller.get("/v1/topics/orders/records"))["records"]
    assert (binary["value"], b64decode(binary["value_base64"])) == (None, b"\xff\x00")
    assert (text["value"], text["value_base64"]) == ("grün", None)
    assert (text["key"], text["headers"]) == ("key", [["h", r"\xff"], ["n", None]])
    assert (text["producer_id"], text["is_transactional"], text["outcome"]) == (-1, False, None)


async def test_an_internal_topic_has_what_its_coordinator_needs(caller: Caller) -> None:
    body = {"name": "__consumer_offsets", "configs": {"segment.bytes": "1048576"}}
    assert (await caller.post("/v1/topics", body))["partitions"] == 50
    topic = caller.control.cluster.metadata.topic("__consumer_offsets")
    assert topic is not None
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "1048576",
    }


async def test_what_cannot_be_read_or_created_is_a_sentence(caller: Caller) -> None:
    for path, status in (
        ("/v1/topics/gone/records", 404),
        ("/v1/topics/orders/records?partition=4", 404),
        ("/v1/topics/orders/records?isolation=dirty", 400),
        ("/v1/topics/orders/records?limit=10001", 400),
    ):
        answered, answer = await caller("GET", path)
        assert (answered, bool(answer["error"])) == (status, True), path
    for body in ({"name": "orders"}, {"name": "a b"}, {"partitions": 0}, {"configs": {"no.such": "1"}}):
        status, answer = await caller("POST", "/v1/topics", body)
        assert (status, bool(answer["error"])) == (400, True), body


async def test_a_partition_without_a_running_leader_is_a_conflict(caller: Caller) -> None:
    await caller.post("/v1/nodes/1/kill")
    status, answer = await caller("GET", "/v1/topics/orders/records")
    assert (status, answer["error"]) == (409, "no running node leads orders-0: node 1 is killed")
    [topic] = (await caller.get("/v1/topics"))["topics"]
    assert [each["leader"] for each in topic["partitions"]] == [None] * 4
