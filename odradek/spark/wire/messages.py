"""The APIs that this client uses, and the range of versions of each.

All versions are below transaction version 2 (KIP-890): EndTxn 5 raises the epoch, so a request that is repeated after a
lost response would no longer refer to the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek._protocol.client import common_version
from odradek._protocol.codec import MalformedRequest, read_response
from odradek.spark.wire.errors import MalformedAnswer, UnsupportedVersion

ANSWER_SIZE_BYTES_MAX = 64 * 1024 * 1024


class Api(NamedTuple):
    """One API, and the range of versions whose semantics this client needs."""

    name: str
    key: int
    lowest: int
    highest: int


PRODUCE = Api("produce", 0, 8, 9)
METADATA = Api("metadata", 3, 9, 12)
# require_stable exists since version 7 (KIP-447).
OFFSET_FETCH = Api("offset_fetch", 9, 7, 8)
FIND_COORDINATOR = Api("find_coordinator", 10, 3, 4)
SASL_HANDSHAKE = Api("sasl_handshake", 17, 1, 1)
API_VERSIONS = Api("api_versions", 18, 3, 3)
INIT_PRODUCER_ID = Api("init_producer_id", 22, 3, 4)
ADD_PARTITIONS_TO_TXN = Api("add_partitions_to_txn", 24, 2, 3)
ADD_OFFSETS_TO_TXN = Api("add_offsets_to_txn", 25, 2, 3)
END_TXN = Api("end_txn", 26, 2, 3)
TXN_OFFSET_COMMIT = Api("txn_offset_commit", 28, 3, 3)
SASL_AUTHENTICATE = Api("sasl_authenticate", 36, 1, 2)
# Since Kafka 3.0 (KIP-664).
DESCRIBE_TRANSACTIONS = Api("describe_transactions", 65, 0, 0)
LIST_TRANSACTIONS = Api("list_transactions", 66, 0, 0)

Versions = Mapping[int, tuple[int, int]]


def choose_version(api: Api, offered: Versions, broker: str) -> int:
    """The highest version that client and broker support. Raises ``UnsupportedVersion`` if there is none."""
    version: int | None = common_version(offered, api.key, api.lowest, api.highest)
    if version is not None:
        return version
    lowest, highest = offered.get(api.key, (0, -1))
    has = f"has versions {lowest} to {highest}" if highest >= 0 else "does not have it"
    raise UnsupportedVersion(
        "UNSUPPORTED_VERSION",
        f"{api.name} is needed in a version from {api.lowest} to {api.highest}, but the broker at {broker} {has}",
    )


def decode_answer(api: Api, version: int, frame: bytes, broker: str) -> Any:
    """Decode the response in ``frame`` (without the size). Raises ``MalformedAnswer`` if the frame cannot be parsed."""
    try:
        return read_response(api.key, version, frame)
    except MalformedRequest as error:
        raise cannot_be_read(api.name, broker, str(error)) from None


def cannot_be_read(name: str, broker: str, why: str) -> MalformedAnswer:
    """The error for a response that cannot be parsed or lacks what was requested."""
    return MalformedAnswer(f"the response to {name} of the broker at {broker} cannot be read: {why}")
