"""Responses with altered fields: a rule changes a copy, at any depth, and only fields that the version has."""

from __future__ import annotations

from lab.faults.altered_answers import altered, fields_of
from protocol.codec import client_codec, request_codec
from protocol.messages.end_txn import EndTxnResponse
from protocol.messages.index import APIS
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

PRODUCE, END_TXN = 0, 26


def test_every_entry_of_a_response_is_altered_and_the_response_itself_is_not() -> None:
    response = ProduceResponse(
        responses=(
            TopicProduceResponse(
                name="orders",
                partition_responses=(
                    PartitionProduceResponse(index=0, base_offset=7),
                    PartitionProduceResponse(index=1, base_offset=8),
                ),
            ),
        )
    )
    result = altered(PRODUCE, 9, response, {"error_code": 6, "base_offset": -1})
    encoded = b"".join(request_codec(PRODUCE, 9).encode(result))
    read = client_codec(PRODUCE, 9).decode(memoryview(encoded), 0)
    entries = read.responses[0].partition_responses
    assert [(each.index, each.error_code, each.base_offset) for each in entries] == [(0, 6, -1), (1, 6, -1)]
    before = response.responses[0].partition_responses
    assert [(each.error_code, each.base_offset) for each in before] == [(0, 7), (0, 8)]


def test_a_field_that_the_version_lacks_changes_nothing() -> None:
    response = EndTxnResponse()
    assert altered(END_TXN, 4, response, {"producer_epoch": 7}) is response
    assert altered(END_TXN, 5, response, {"producer_epoch": 7}).producer_epoch == 7


def test_every_api_has_fields_to_alter() -> None:
    assert all(fields_of(key) for key in APIS)
    assert "error_code" in fields_of(END_TXN)
    assert "records" not in fields_of(1)
