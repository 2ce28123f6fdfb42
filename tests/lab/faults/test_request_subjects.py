"""The subjects of requests, in every version: topics by name or id, partitions, groups, transactional ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from broker.node import Node
from broker.node.context import RequestContext
from broker.requests.api import discover
from lab.faults.declaration import Match
from lab.faults.fields import LOGINS, named_by
from lab.faults.matching import subjects_meet
from lab.faults.request_subjects import RequestSubjects, subjects_in, subjects_of
from protocol.codec import client_codec, request_codec
from protocol.messages import alter_configs, describe_configs, incremental_alter_configs
from protocol.messages.fetch import FetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from protocol.messages.share_fetch import ShareFetchRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.versions import at_version
from tests.lab.faults.test_error_answers import sample

APIS = discover()
TOPICS = {UUID(int=1): "by-id-0", UUID(int=3): "by-id-1"}

# The subjects of each API: topics with partitions (P) or alone (T), groups (G), members (M), transactional ids (X),
# ranges of offsets (O), records in the response (A).
NAMES = {
    "add_offsets_to_txn": "GX",
    "add_partitions_to_txn": "PX",
    "alter_partition_reassignments": "P",
    "alter_replica_log_dirs": "P",
    "alter_share_group_offsets": "GP",
    "consumer_group_describe": "G",
    "consumer_group_heartbeat": "GTPM",
    "create_partitions": "T",
    "create_topics": "T",
    "delete_groups": "G",
    "delete_records": "P",
    "delete_share_group_offsets": "GT",
    "delete_share_group_state": "GP",
    "delete_topics": "T",
    "describe_groups": "G",
    "describe_log_dirs": "P",
    "describe_producers": "P",
    "describe_quorum": "P",
    "describe_share_group_offsets": "GP",
    "describe_topic_partitions": "T",
    "describe_transactions": "X",
    "elect_leaders": "P",
    "end_txn": "X",
    "fetch": "P",
    "heartbeat": "GM",
    "init_producer_id": "X",
    "initialize_share_group_state": "GP",
    "join_group": "GM",
    "leave_group": "GM",
    "list_offsets": "P",
    "list_partition_reassignments": "P",
    "metadata": "T",
    "offset_commit": "GPM",
    "offset_delete": "GP",
    "offset_fetch": "GPM",
    "offset_for_leader_epoch": "P",
    "produce": "PX",
    "read_share_group_state": "GP",
    "read_share_group_state_summary": "GP",
    "share_acknowledge": "GPMO",
    "share_fetch": "GPMOA",
    "share_group_describe": "G",
    "share_group_heartbeat": "GTM",
    "sync_group": "GM",
    "txn_offset_commit": "GPXM",
    "write_share_group_state": "GPO",
    "write_txn_markers": "P",
}
MEMBER_SINCE = {"offset_fetch": 9, "txn_offset_commit": 3}
"""First version with a member id, where it is not the first that the broker serves."""
OF_A_KIND = ("alter_configs", "describe_configs", "find_coordinator", "incremental_alter_configs")
"""APIs whose keys or resources have a type. They have tests of their own."""
EVERY_VERSION = [
    (api.name, key, version)
    for key, api in sorted(APIS.items())
    for version in api.versions
    if api.name not in OF_A_KIND
]


def read(key: int, version: int, request: Any) -> RequestSubjects:
    """The subjects that the broker finds in the request after decoding it from the wire."""
    data = b"".join(map(bytes, client_codec(key, version).encode(request)))
    return subjects_in(key, request_codec(key, version).decode(data), TOPICS.get)


@pytest.mark.parametrize(("name", "key", "version"), EVERY_VERSION)
def test_a_request_is_asked_for_what_its_api_names(name: str, key: int, version: int) -> None:
    found = read(key, version, sample(at_version(key, version, "request")))
    kinds = NAMES.get(name, "")
    assert bool(found.groups) == ("G" in kinds)
    assert bool(found.transactional_ids) == ("X" in kinds)
    assert bool(found.members) == ("M" in kinds and version >= MEMBER_SINCE.get(name, 0))
    assert bool(found.offsets) == ("O" in kinds)
    assert {(topic, index) for topic, index, *_ in found.offsets} <= set(found.partitions)
    assert bool(found.partitions) == ("P" in kinds or "T" in kinds)
    assert {index is None for _, index in found.partitions} <= {kind == "T" for kind in kinds}
    if found.partitions:
        assert len({topic for topic, _ in found.partitions}) >= 2
    if "P" in kinds:
        assert len({index for _, index in found.partitions}) >= 2


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_sought_for_a_group_or_a_transaction(version: int) -> None:
    for key_type in (0, 1) if version else (0,):
        request = FindCoordinatorRequest(key="a" if version < 4 else "", key_type=key_type)
        if version >= 4:
            request.coordinator_keys = ["a"]
        found = read(10, version, request)
        assert (found.groups, found.transactional_ids) == (
            ({"a"}, set()) if key_type == 0 else (set(), {"a"})
        )


@pytest.mark.parametrize(
    ("key", "version", "messages"),
    [(32, 4, describe_configs), (33, 2, alter_configs), (44, 1, incremental_alter_configs)],
)
def test_the_config_of_a_topic_is_about_that_topic(key: int, version: int, messages: Any) -> None:
    api = APIS[key]
    words = "".join(word.title() for word in api.name.split("_"))
    of_one = getattr(messages, "DescribeConfigsResource", None) or messages.AlterConfigsResource
    resources = [
        of_one(resource_type=2, resource_name="orders"),
        of_one(resource_type=4, resource_name="1"),
        of_one(resource_type=32, resource_name="g"),
    ]
    found = read(key, version, getattr(messages, f"{words}Request")(resources=resources))
    assert (found.partitions, found.groups) == ([("orders", None)], {"g"})


def test_an_unknown_topic_id_is_no_topic() -> None:
    found = subjects_in(0, sample(at_version(0, 13, "request")), {UUID(int=3): "orders"}.get)
    assert {topic for topic, _ in found.partitions} == {"orders"}


def test_a_fetch_of_a_session_is_about_all_partitions_of_the_session() -> None:
    sessions = {7: [("orders", 3)]}
    node = SimpleNamespace(
        topic_name=lambda topic_id: None,
        session_partitions=lambda session_id: sessions.get(session_id, ()),
    )
    context = cast(RequestContext, SimpleNamespace(node=node, api_key=1))
    assert subjects_of(FetchRequest(session_id=7, session_epoch=2), context).partitions == [("orders", 3)]
    assert subjects_of(FetchRequest(session_id=8, session_epoch=2), context).partitions == []


@pytest.mark.parametrize(
    ("match", "met"),
    [
        (Match(topic="orders"), True),
        (Match(topic="o*"), True),
        (Match(topic="payments"), False),
        (Match(topic="orders", partition=1), True),
        (Match(topic="orders", partition=2), False),
        (Match(partition=2), True),
        (Match(partition=5), False),
        (Match(topic="orders", group="*"), False),
    ],
)
def test_one_of_its_partitions_is_enough_but_it_must_be_one(match: Match, met: bool) -> None:
    """A rule for a partition matches a request with several partitions if one of them is this partition. A rule for orders-2
    does not match a request for orders-1 and other-2."""
    topics = [
        ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=1)]),
        ListOffsetsTopic(name="other", partitions=[ListOffsetsPartition(partition_index=2)]),
    ]
    assert subjects_meet(match, read(2, 5, ListOffsetsRequest(topics=topics))) == met


def test_what_a_rule_may_ask_of_an_api_is_what_its_requests_name() -> None:
    kinds = {
        "X": {"transactional_id"},
        "G": {"group"},
        "M": {"member"},
        "T": {"topic"},
        "P": {"topic", "partition"},
        "O": {"offset"},
        "A": {"acquired"},
    }
    for key, api in APIS.items():
        if api.name not in OF_A_KIND and key not in LOGINS:
            expected = set().union(*(kinds[kind] for kind in NAMES.get(api.name, "")))
            assert named_by(key) == expected, api.name
    assert named_by(10) == {"transactional_id", "group"}
    assert [named_by(key) for key in LOGINS] == [{"mechanism"}] * 2
    assert [named_by(key) for key in (32, 33, 44)] == [{"topic", "group"}] * 3


def test_the_members_in_the_assignments_of_a_leader_are_not_its_senders() -> None:
    assignments = [SyncGroupRequestAssignment(member_id=each) for each in ("a", "b")]
    found = read(14, 5, SyncGroupRequest(group_id="g", member_id="a", assignments=assignments))
    assert found.members == {"a"}
    leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=each) for each in "ab"])
    assert read(13, 5, leaving).members == {"a", "b"}


@pytest.mark.parametrize(
    ("key", "request_of", "epochs"),
    [
        (78, ShareFetchRequest, {1: True, 0: False, -1: True}),
        (79, ShareAcknowledgeRequest, {1: False, -1: True}),
    ],
)
def test_which_requests_are_about_the_partitions_of_their_share_session(
    key: int, request_of: Any, epochs: dict[int, bool]
) -> None:
    sessions = {("g", "m"): [("orders", 3)]}
    node = SimpleNamespace(
        topic_name=lambda topic_id: None, share_session_partitions=lambda *key: sessions.get(key, ())
    )
    context = cast(RequestContext, SimpleNamespace(node=node, api_key=key))
    for epoch, is_about_them in epochs.items():
        request = request_of(group_id="g", member_id="m", share_session_epoch=epoch)
        assert subjects_of(request, context).partitions == ([("orders", 3)] if is_about_them else [])
        request.member_id = None
        assert subjects_of(request, context).partitions == []


@pytest.mark.parametrize(
    ("match", "met"),
    [
        (Match(offset=4), True),
        (Match(offset=5), False),
        (Match(topic="by-id-0", offset=4), True),
        (Match(topic="by-id-1", offset=4), False),
        (Match(topic="by-id-0", partition=2, offset=4), True),
        (Match(topic="by-id-0", partition=0, offset=4), False),
        (Match(member="member_id-0", offset=4), True),
        (Match(member="m*", offset=4), True),
        (Match(member="other", offset=4), False),
    ],
)
@pytest.mark.parametrize("key", [78, 79])
def test_an_offset_must_be_acknowledged_in_a_partition_that_matches(
    key: int, match: Match, met: bool
) -> None:
    """by-id-0 has the ranges 0 to 0 and 2 to 2 of partition 0, 4 to 4 and 6 to 6 of partition 2; by-id-1 higher ones."""
    assert subjects_meet(match, read(key, 2, sample(at_version(key, 2, "request")))) == met


def test_a_node_tells_the_partitions_of_a_session_whose_topics_it_knows() -> None:
    wanted = [SimpleNamespace(topic="orders", index=3), SimpleNamespace(topic=None, index=4)]
    session = SimpleNamespace(partitions=dict(enumerate(wanted)))
    node = cast(Node, SimpleNamespace(fetch_sessions=SimpleNamespace(by_id={7: session})))
    assert list(Node.session_partitions(node, 7)) == [("orders", 3)]
    assert list(Node.session_partitions(node, 8)) == []
