"""Headers of requests and responses, and splitting a stream into frames.

    request header v1, v2:  api_key i16 | api_version i16 | correlation_id i32 | client_id nullable string
                            v2 appends a tag section; client_id has its two-byte length in v2, too
    response header v0, v1: correlation_id i32; v1 appends a tag section

A flexible version (KIP-482) of an API has request header v2 and response header v1, the others v1 and v0. There is one
exception: the response to ApiVersions always has header v0, because a client must be able to read it even if it used a
version that the broker does not know.
"""

import struct
from collections.abc import Iterator
from typing import Final

from .core import compiled, mirrored
from .decode import MalformedRequest, skip_tag_section
from .named_tuple import NamedTuple
from .wire_types import TAGS_MAX

API_VERSIONS = 18
SIZE: Final = struct.Struct(">i")
"""Size field in front of a frame on a connection. It does not count its own four bytes."""

# The first flexible version of each API, None if there is none yet. A separate table, because the header of a request must
# be read before it is known whether the broker supports that version.
FIRST_FLEXIBLE: dict[int, int | None] = {
    0: 9,  # produce
    1: 12,  # fetch
    2: 6,  # list_offsets
    3: 9,  # metadata
    4: 4,  # leader_and_isr
    5: 2,  # stop_replica
    6: 6,  # update_metadata
    7: 3,  # controlled_shutdown
    8: 8,  # offset_commit
    9: 6,  # offset_fetch
    10: 3,  # find_coordinator
    11: 6,  # join_group
    12: 4,  # heartbeat
    13: 4,  # leave_group
    14: 4,  # sync_group
    15: 5,  # describe_groups
    16: 3,  # list_groups
    17: None,  # sasl_handshake
    18: 3,  # api_versions
    19: 5,  # create_topics
    20: 4,  # delete_topics
    21: 2,  # delete_records
    22: 2,  # init_producer_id
    23: 4,  # offset_for_leader_epoch
    24: 3,  # add_partitions_to_txn
    25: 3,  # add_offsets_to_txn
    26: 3,  # end_txn
    27: 1,  # write_txn_markers
    28: 3,  # txn_offset_commit
    29: 2,  # describe_acls
    30: 2,  # create_acls
    31: 2,  # delete_acls
    32: 4,  # describe_configs
    33: 2,  # alter_configs
    34: 2,  # alter_replica_log_dirs
    35: 2,  # describe_log_dirs
    36: 2,  # sasl_authenticate
    37: 2,  # create_partitions
    38: 2,  # create_delegation_token
    39: 2,  # renew_delegation_token
    40: 2,  # expire_delegation_token
    41: 2,  # describe_delegation_token
    42: 2,  # delete_groups
    43: 2,  # elect_leaders
    44: 1,  # incremental_alter_configs
    45: 0,  # alter_partition_reassignments
    46: 0,  # list_partition_reassignments
    47: None,  # offset_delete
    48: 1,  # describe_client_quotas
    49: 1,  # alter_client_quotas
    50: 0,  # describe_user_scram_credentials
    51: 0,  # alter_user_scram_credentials
    52: 0,  # vote
    53: 1,  # begin_quorum_epoch
    54: 1,  # end_quorum_epoch
    55: 0,  # describe_quorum
    56: 0,  # alter_partition
    57: 0,  # update_features
    58: 0,  # envelope
    59: 0,  # fetch_snapshot
    60: 0,  # describe_cluster
    61: 0,  # describe_producers
    62: 0,  # broker_registration
    63: 0,  # broker_heartbeat
    64: 0,  # unregister_broker
    65: 0,  # describe_transactions
    66: 0,  # list_transactions
    67: 0,  # allocate_producer_ids
    68: 0,  # consumer_group_heartbeat
    69: 0,  # consumer_group_describe
    70: 0,  # controller_registration
    71: 0,  # get_telemetry_subscriptions
    72: 0,  # push_telemetry
    73: 0,  # assign_replicas_to_dirs
    74: 0,  # list_config_resources
    75: 0,  # describe_topic_partitions
    76: 0,  # share_group_heartbeat
    77: 0,  # share_group_describe
    78: 0,  # share_fetch
    79: 0,  # share_acknowledge
    80: 0,  # add_raft_voter
    81: 0,  # remove_raft_voter
    82: 0,  # update_raft_voter
    83: 0,  # initialize_share_group_state
    84: 0,  # read_share_group_state
    85: 0,  # write_share_group_state
    86: 0,  # delete_share_group_state
    87: 0,  # read_share_group_state_summary
    88: 0,  # streams_group_heartbeat
    89: 0,  # streams_group_describe
    90: 0,  # describe_share_group_offsets
    91: 0,  # alter_share_group_offsets
    92: 0,  # delete_share_group_offsets
    93: 0,  # streams_group_topology_description_update
    94: 0,  # unregister_controller
}

_FIXED_PART = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header of one request. Its message starts at ``body_offset`` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


if compiled is not None:
    compiled.set_up_frames(
        malformed_request=MalformedRequest,
        request_header=RequestHeader,
        first_flexible=FIRST_FLEXIBLE,
        tags_max=TAGS_MAX,
    )


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether a version has tag sections. Raises ``MalformedRequest`` for an unknown API."""
    try:
        first = FIRST_FLEXIBLE[api_key]
    except KeyError:
        raise MalformedRequest(f"no API has the key {api_key}") from None
    return first is not None and api_version >= first


@mirrored("parse_request_header")
def parse_request_header(frame: bytes | memoryview) -> RequestHeader:
    """Parse the header at the start of a frame, which is without the four bytes of its size."""
    try:
        api_key, api_version, correlation_id, length = _FIXED_PART.unpack_from(frame)
    except struct.error:
        raise MalformedRequest("the frame ends inside its header") from None
    client_id = None
    offset = 10
    if length >= 0:
        offset += length
        if offset > len(frame):
            raise MalformedRequest("the frame ends inside its header")
        client_id = str(frame[10:offset], "utf-8", "replace")
    if is_flexible(api_key, api_version):
        offset = skip_tag_section(frame, offset)
    return RequestHeader(api_key, api_version, correlation_id, client_id, offset)


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a client's request."""
    text = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(text)
    tags = b"\0" if is_flexible(api_key, api_version) else b""
    return _FIXED_PART.pack(api_key, api_version, correlation_id, length) + text + tags


@mirrored("response_header")
def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The header of a response."""
    header = _CORRELATION_ID.pack(correlation_id)
    if api_key != API_VERSIONS and is_flexible(api_key, api_version):
        return header + b"\0"
    return header


class BadSize(Exception):
    """A number that cannot be the size of a response."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def check_size(size: int, bytes_max: int) -> None:
    """Raise ``BadSize`` if a response of ``size`` bytes is too short for a correlation id, or longer than ``bytes_max``."""
    if not _CORRELATION_ID.size <= size <= bytes_max:
        raise BadSize(size)


def whole_frames(received: bytearray, bytes_max: int) -> Iterator[bytes]:
    """Remove and yield the complete responses in ``received``. Raises ``BadSize`` for an invalid size."""
    while len(received) >= SIZE.size:
        (size,) = SIZE.unpack_from(received)
        check_size(size, bytes_max)
        end = SIZE.size + size
        if len(received) < end:
            return
        frame = bytes(received[SIZE.size : end])
        del received[:end]
        yield frame


def correlation_id_of(frame: bytes | memoryview) -> int:
    """Correlation id of a response, which equals the correlation id of the request."""
    return int(_CORRELATION_ID.unpack_from(frame)[0])


def response_body_offset(api_key: int, api_version: int, frame: bytes | memoryview) -> int:
    """Position of the message in a response frame."""
    if api_key == API_VERSIONS or not is_flexible(api_key, api_version):
        return _CORRELATION_ID.size
    return skip_tag_section(frame, _CORRELATION_ID.size)
