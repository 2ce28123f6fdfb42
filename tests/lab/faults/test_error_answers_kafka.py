"""Error responses of fault rules, compared with those of Kafka's getErrorResponse, nearly all of them byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.requests.error_answers import error_answer
from protocol.codec import client_codec, request_codec
from protocol.messages import Message
from protocol.versions import at_version
from tests.lab.faults.test_error_answers import CODE, EVERY_VERSION, encoded, sample
from tests.support.javaprog import java_clients

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("jvm")]

# Reasons: Kafka collects partitions in a hash map, or adds an error message. `alike` has the others.
NOT_BY_BYTE = {
    "produce",
    "write_txn_markers",
    "find_coordinator",
    "describe_configs",
    "list_partition_reassignments",
    "add_raft_voter",
    "alter_client_quotas",
    "describe_quorum",
    "remove_raft_voter",
    "sasl_authenticate",
    "unregister_broker",
    "unregister_controller",
    "alter_share_group_offsets",
    "delete_share_group_offsets",
    "describe_share_group_offsets",
    "delete_share_group_state",
    "initialize_share_group_state",
    "read_share_group_state",
    "read_share_group_state_summary",
    "write_share_group_state",
}
PROGRAM = "org.apache.kafka.common.requests.ErrorAnswers"


@pytest.mark.parametrize("sparse", [False, True])
def test_every_error_answer_is_kafka_s_own(tmp_path: Path, sparse: bool) -> None:
    lines, ours = [], []
    for name, key, version in EVERY_VERSION:
        asked = sample(at_version(key, version, "request"), sparse=sparse)
        if name == "produce":
            asked.acks = 1  # with acks=0 there is no response
        body = b"".join(map(bytes, client_codec(key, version).encode(asked)))
        lines.append(f"{key} {version} {CODE.value} {body.hex()}")
        request = request_codec(key, version).decode(body)
        ours.append(encoded(key, version, error_answer(key, version, request, CODE)))
    requests = tmp_path / "requests"
    requests.write_text("\n".join(lines))
    ran = java_clients().tool(PROGRAM, str(requests))
    assert ran.status == 0, ran.err
    theirs = [bytes.fromhex(line) for line in ran.out.split()]
    assert [
        (name, version, client_codec(key, version).decode(mine), client_codec(key, version).decode(kafka))
        for (name, key, version), mine, kafka in zip(EVERY_VERSION, ours, theirs, strict=True)
        if not alike(name, client_codec(key, version).decode(mine), client_codec(key, version).decode(kafka))
        or (name not in NOT_BY_BYTE and mine != kafka)
    ] == []


def alike(name: str, mine: Any, kafka: Any) -> bool:
    if name == "list_partition_reassignments":
        # Kafka returns the requested partitions, without an error.
        return bool(mine.error_code == kafka.error_code and not mine.topics)
    return plain(mine) == plain(kafka)


def plain(value: Any) -> Any:
    """A message without its error messages and without the order of its entries, for comparison."""
    if isinstance(value, Message):
        return [
            (name, plain(getattr(value, name))) for name, *_ in value.__fields__ if name != "error_message"
        ]
    return sorted(map(plain, value), key=repr) if isinstance(value, tuple | list) else value
