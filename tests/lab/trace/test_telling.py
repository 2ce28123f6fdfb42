"""Frames as JSON for every API and version, and as lines of text for examples."""

from __future__ import annotations

import json
import random
import uuid
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema

from lab.trace.decoding import CUT, answer_dict, request_dict
from lab.trace.exchange import Exchange, Outcome, TransactionFacts
from lab.trace.json_form import json_line, to_json
from lab.trace.lines import text_line
from lab.trace.producer_facts import transactions_in
from protocol.batch import build_batch, end_txn_marker
from protocol.codec import client_codec, request_codec
from protocol.error_codes import error_name
from protocol.frame import parse_request_header, request_header, response_header
from protocol.generators import kio_schemas
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.index import APIS
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.share_fetch import FetchPartition as SharePartition
from protocol.messages.share_fetch import FetchTopic as ShareTopic
from protocol.messages.share_fetch import PartitionData as SharePartitionData
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.versions import WireField
from tests.lab.trace.test_pcap import exchange
from tests.protocol.test_messages_bytes import kio_bytes, random_message

ORDERS = uuid.UUID(int=0xABC)
PRODUCE, FETCH, FIND_COORDINATOR, END_TXN, MARKERS, SASL_AUTHENTICATE = 0, 1, 10, 26, 27, 36
SHARE_FETCH = 78
INIT_PRODUCER_ID, ADD_PARTITIONS = 22, 24
BATCH = build_batch(
    [(1_700_000_000_000, b"key", b"secret"), (1_700_000_000_001, None, None)],
    producer_id=7,
    producer_epoch=2,
    base_sequence=5,
    transactional=True,
)


def names(topic_id: uuid.UUID) -> str | None:
    return "orders" if topic_id == ORDERS else None


def asked(key: int, version: int, request: object, answer: object = None, **facts: Any) -> Exchange:
    """An exchange whose frames are encoded from messages."""
    frame = request_header(key, version, 9, "c") + b"".join(client_codec(key, version).encode(request))
    reply = None
    if answer is not None:
        reply = response_header(key, version, 9) + b"".join(request_codec(key, version).encode(answer))
    made = exchange(9, frame, reply, api_key=key, api_version=version, **facts)
    made.took_us = 1250
    message = request_codec(key, version).decode(frame, parse_request_header(frame).body_offset)
    made.transactions = transactions_in(key, message)
    return made


# -- every API and version ------------------------------------------------------------------------------------------


def check_fields(message: Any, told: dict[str, Any], wire: Sequence[WireField]) -> None:
    """Check that the JSON has every field of the version, in order, with its value. Other entries may only be the names of
    error codes and ids."""
    fields = [field.name for field in wire]
    assert [name for name in told if name in fields] == fields
    assert all(name.endswith(("error", "_name")) for name in told if name not in fields)
    for field in wire:
        value, said = getattr(message, field.name), told[field.name]
        if field.kind == "struct" and field.is_array and value is not None:
            assert len(said) == len(value)
            for each, of_it in zip(value, said, strict=True):
                check_fields(each, of_it, field.nested.__wire__)
        elif field.kind in ("string", "bool") and not field.is_array:
            assert said == value
        elif field.kind.startswith(("int", "uint")) and not field.is_array:
            assert said == int(value)


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_version_is_told_field_by_field_as_json(key: int) -> None:
    rng = random.Random(key)
    for version in kio_schemas.versions(key):
        request = kio_bytes(random_message(rng, load_request_schema(key, version)))
        answer = kio_bytes(random_message(rng, load_response_schema(key, version)))
        made = exchange(
            1,
            request_header(key, version, 1, "c") + request,
            response_header(key, version, 1) + answer,
            api_key=key,
            api_version=version,
        )
        told = json.loads(json_line(made, names, values=True))
        assert "undecodable" not in told["request"]
        for codec, body, side in ((request_codec, request, "request"), (client_codec, answer, "answer")):
            message = codec(key, version).decode(body)
            check_fields(message, told[side], message.__wire__)
        # Random content must not fail: the trace reads every request.
        made.transactions = transactions_in(key, request_codec(key, version).decode(request))
        assert len(json.loads(json_line(made))["transactions"]) == len(made.transactions)
        assert "\n" not in text_line(made, names)


# -- values ---------------------------------------------------------------------------------------------------------


def produced(version: int = 13, records: bytes = BATCH) -> Exchange:
    topic = TopicProduceData(
        name="orders", topic_id=ORDERS, partition_data=[PartitionProduceData(index=1, records=records)]
    )
    stored = PartitionProduceResponse(index=1, base_offset=17, log_append_time_ms=-1, log_start_offset=0)
    return asked(
        PRODUCE,
        version,
        ProduceRequest(transactional_id="tx", acks=-1, topic_data=[topic]),
        ProduceResponse(
            responses=[TopicProduceResponse(name="orders", topic_id=ORDERS, partition_responses=[stored])]
        ),
    )


def test_records_are_told_as_their_batches_and_never_their_values() -> None:
    told = request_dict(produced(), names)
    (topic,) = told["topic_data"]
    assert (topic["topic_id"], topic["topic_name"]) == (str(ORDERS), "orders")
    (batch,) = topic["partition_data"][0]["records"]["batches"]
    assert (batch["count"], batch["producer_id"], batch["producer_epoch"]) == (2, 7, 2)
    assert (batch["base_sequence"], batch["last_sequence"], batch["transactional"]) == (5, 6, True)
    assert (batch["base_timestamp_ms"], batch["compression"]) == (1_700_000_000_000, "none")
    assert b64encode(b"secret").decode() not in json.dumps(told)


def test_values_are_shown_on_request() -> None:
    told = request_dict(produced(), names, values=True)
    (batch,) = told["topic_data"][0]["partition_data"][0]["records"]["batches"]
    first, second = batch["records"]
    assert b64decode(first["value"]) == b"secret"
    assert (second["key"], second["value"], second["offset"]) == (None, None, 1)


def test_a_marker_says_what_it_decides() -> None:
    marker = end_txn_marker(7, 2, committed=False, coordinator_epoch=4, timestamp_ms=1)
    told = request_dict(produced(records=marker), names)
    (batch,) = told["topic_data"][0]["partition_data"][0]["records"]["batches"]
    assert (batch["control"], batch["marker"], batch["coordinator_epoch"]) == (True, "ABORT", 4)


def test_of_a_batch_that_was_cut_off_the_size_is_told() -> None:
    told = request_dict(produced(records=BATCH + BATCH[:50]), names)
    records = told["topic_data"][0]["partition_data"][0]["records"]
    assert (len(records["batches"]), records["incomplete_bytes"]) == (1, 50)


def test_records_that_are_none_do_not_stop_the_rest() -> None:
    broken = bytearray(BATCH)
    broken[16] = 1
    told = request_dict(produced(records=bytes(broken)), names)
    assert "magic 1" in told["topic_data"][0]["partition_data"][0]["records"]["undecodable"]


def test_of_a_secret_only_the_size_is_told() -> None:
    made = asked(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0user\0password"))
    assert request_dict(made)["auth_bytes"] == {"bytes": 14}


def answer_of(exchange: Any, **options: Any) -> dict[str, Any]:
    answer = answer_dict(exchange, **options)
    assert answer is not None
    return answer


def test_the_hmac_of_a_delegation_token_is_never_told() -> None:
    secret, size = b"the hmac", {"bytes": 8}
    creation = asked(38, 3, CreateDelegationTokenRequest(), CreateDelegationTokenResponse(hmac=secret))
    tokens = [DescribedDelegationToken(hmac=secret)]
    told: list[Any] = [
        answer_dict(creation, values=True),
        request_dict(asked(39, 2, RenewDelegationTokenRequest(hmac=secret)), values=True),
        request_dict(asked(40, 2, ExpireDelegationTokenRequest(hmac=secret)), values=True),
        answer_of(
            asked(
                41,
                3,
                DescribeDelegationTokenRequest(),
                DescribeDelegationTokenResponse(tokens=tokens),
            ),
            values=True,
        )["tokens"][0],
    ]
    assert [each["hmac"] for each in told] == [size] * 4


def test_a_cut_frame_is_told_as_cut() -> None:
    made = produced()
    made.request_bytes += 1
    made.answer_bytes += 1
    assert request_dict(made) == answer_dict(made) == CUT


def test_an_error_has_its_name() -> None:
    made = asked(END_TXN, 3, EndTxnRequest(), EndTxnResponse(error_code=51))
    told = answer_dict(made)
    assert told is not None
    assert (told["error_code"], told["error"]) == (51, "CONCURRENT_TRANSACTIONS")
    assert error_name(9999) == "9999"


def test_the_facts_are_there_without_the_bodies() -> None:
    told = to_json(produced(), names, bodies=False)
    assert "request" not in told
    assert told["transactions"] == [{"transactional_id": "tx", "producer_id": 7, "producer_epoch": 2}]
    assert (told["api"], told["version"], told["outcome"]) == ("Produce", 13, "answered")
    assert (told["peer"], told["from_node"], told["took_us"]) == ("127.0.0.1:50001", None, 1250)


# -- transactions of an exchange ------------------------------------------------------------------------------------

TWO = [
    AddPartitionsToTxnTransaction(transactional_id=name, producer_id=pid, producer_epoch=1, topics=[])
    for name, pid in (("a", 1), ("b", 2))
]


@pytest.mark.parametrize(
    ("key", "version", "request_", "facts"),
    [
        (END_TXN, 3, EndTxnRequest(transactional_id="a", producer_id=4, producer_epoch=5), [("a", 4, 5)]),
        (INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id="a"), [("a", -1, -1)]),
        (INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None), []),
        (ADD_PARTITIONS, 4, AddPartitionsToTxnRequest(transactions=TWO), [("a", 1, 1), ("b", 2, 1)]),
        (
            ADD_PARTITIONS,
            3,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="a",
                v3_and_below_producer_id=3,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
            ),
            [("a", 3, 0)],
        ),
        (
            MARKERS,
            1,
            WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=6, producer_epoch=7)]),
            [(None, 6, 7)],
        ),
        (FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=1, coordinator_keys=["a"]), [("a", -1, -1)]),
        (FIND_COORDINATOR, 3, FindCoordinatorRequest(key_type=1, key="a"), [("a", -1, -1)]),
        (FIND_COORDINATOR, 3, FindCoordinatorRequest(key_type=0, key="group"), []),
    ],
)
def test_a_request_says_whose_transaction_it_is_about(
    key: int, version: int, request_: object, facts: list[tuple[Any, ...]]
) -> None:
    assert list(asked(key, version, request_).transactions) == [TransactionFacts(*each) for each in facts]


def test_a_produce_says_it_by_its_first_batch() -> None:
    assert produced().transactions == (TransactionFacts("tx", 7, 2),)
    plain = asked(PRODUCE, 9, ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[])]))
    assert plain.transactions == ()


# -- lines ----------------------------------------------------------------------------------------------------------


def line_of(made: Exchange) -> str:
    """The text of an exchange without the parts that all lines have: time, node, client and duration."""
    line = text_line(made, names)
    head = "22:13:20.009 node 1 < c@127.0.0.1:50001 "
    assert line.startswith(head)
    assert line.endswith(" 1.2 ms")
    return line.removeprefix(head).removesuffix(" 1.2 ms")


def test_a_produce_on_one_line() -> None:
    assert line_of(produced()) == (
        "Produce v13 #9 tx=tx orders-1[2 records seq 5-6 pid=7/2] -> ok orders-1@17"
    )


def test_an_end_on_one_line() -> None:
    request = EndTxnRequest(transactional_id="tx", producer_id=7, producer_epoch=2, committed=True)
    done = asked(END_TXN, 5, request, EndTxnResponse(producer_id=7, producer_epoch=3))
    assert line_of(done) == "EndTxn v5 #9 tx=tx pid=7/2 commit -> ok pid=7/3"
    refused = asked(END_TXN, 5, request, EndTxnResponse(error_code=47))
    assert line_of(refused) == "EndTxn v5 #9 tx=tx pid=7/2 commit -> INVALID_PRODUCER_EPOCH"
    lost = asked(END_TXN, 5, request, EndTxnResponse(error_code=47), outcome=Outcome.ANSWER_LOST)
    assert line_of(lost).endswith("-> ANSWER LOST by a rule (INVALID_PRODUCER_EPOCH)")
    gone = asked(END_TXN, 5, request, outcome=Outcome.CONNECTION_GONE)
    assert line_of(gone).endswith("-> CONNECTION GONE before the answer")


def test_a_fetch_on_one_line_names_the_partitions_that_brought_something() -> None:
    partitions = [FetchPartition(partition=index, fetch_offset=17) for index in range(6)]
    answers = [
        PartitionData(partition_index=0, error_code=6, records=b""),
        PartitionData(partition_index=1, records=BATCH),
    ]
    topic = FetchTopic(topic="orders", topic_id=ORDERS, partitions=partitions)
    answer = FetchResponse(
        responses=[FetchableTopicResponse(topic="orders", topic_id=ORDERS, partitions=answers)]
    )
    made = asked(FETCH, 13, FetchRequest(topics=[topic]), answer)
    assert line_of(made) == (
        "Fetch v13 #9 orders-0@17 orders-1@17 orders-2@17 orders-3@17 +2 -> orders-0:NOT_LEADER_OR_FOLLOWER"
    )


def test_a_share_fetch_on_one_line_names_the_records_acknowledged_and_acquired() -> None:
    batches = [
        AcknowledgementBatch(first_offset=0, last_offset=3, acknowledge_types=[1]),
        AcknowledgementBatch(first_offset=4, last_offset=6, acknowledge_types=[2, 3, 2]),
        AcknowledgementBatch(first_offset=7, last_offset=7, acknowledge_types=[9]),
    ]
    asks = SharePartition(partition_index=0, acknowledgement_batches=batches)
    acquired = [AcquiredRecords(first_offset=8, last_offset=9, delivery_count=1)]
    answers = SharePartitionData(partition_index=0, records=BATCH, acquired_records=acquired)
    made = asked(
        SHARE_FETCH,
        2,
        ShareFetchRequest(
            group_id="g", member_id="b", topics=[ShareTopic(topic_id=ORDERS, partitions=[asks])]
        ),
        ShareFetchResponse(responses=[ShareFetchableTopicResponse(topic_id=ORDERS, partitions=[answers])]),
    )
    assert line_of(made) == (
        "ShareFetch v2 #9 group=g member=b orders-0[accept 0-3, release,reject 4-6, 9 7] "
        "-> ok orders-0[acquired 8-9 delivery 1]"
    )


def test_what_a_client_calls_itself_cannot_break_the_line() -> None:
    made = asked(END_TXN, 5, EndTxnRequest(transactional_id="a\nb\x1b[31m"))
    made.client_id = "c\r\n12:00"
    line = text_line(made)
    assert line.isprintable()
    assert "tx=a\\nb\\x1b[31m" in line


def test_markers_between_nodes_are_told_as_asked_by_a_node() -> None:
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=2,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 2])],
    )
    written = WritableTxnMarkerPartitionResult(partition_index=0)
    of_topic = WritableTxnMarkerTopicResult(name="orders", partitions=[written])
    result = WritableTxnMarkerResult(producer_id=7, topics=[of_topic])
    answer = WriteTxnMarkersResponse(markers=[result])
    made = asked(MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]), answer)
    made.client_id = "broker-2-txn-marker-sender"
    assert made.from_node == 2
    line = text_line(made)
    assert "node 1 < node 2 WriteTxnMarkers v1 #9 pid=7/2 commit orders-0 orders-2 -> ok pid=7 " in line


@pytest.mark.parametrize(
    ("client_id", "node_id"),
    [
        ("broker-2-txn-marker-sender", 2),
        ("AddPartitionsManager-client-31", 31),
        ("broker-2-txn-marker-sender-of-mine", None),
        ("my-broker-2-txn-marker-sender", None),
        ("", None),
        (None, None),
    ],
)
def test_a_node_is_known_by_what_it_calls_itself(client_id: str | None, node_id: int | None) -> None:
    made = produced()
    made.client_id = client_id
    assert made.from_node == node_id
