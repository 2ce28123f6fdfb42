"""The generated message classes, and the class for one version that is derived from them."""

import dataclasses
from importlib import import_module

import pytest
from kio.schema.index import api_key_map

from protocol.codec import client_codec, request_codec
from protocol.generators import messages as generate
from protocol.messages import Message, index
from protocol.messages.describe_topic_partitions import ResponseCursor
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchRequest,
    ForgottenTopic,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.versions import UnknownVersion, at_version, versions_of


@pytest.mark.parametrize("key", api_key_map)
def test_what_is_checked_in_is_what_the_generator_writes(key):
    module = import_module(f"protocol.messages.{api_key_map[key]}")
    assert module.__file__ is not None
    with open(module.__file__) as file:
        assert file.read() == generate.render(key)


def test_the_index_is_what_the_generator_writes():
    with open(index.__file__) as file:
        assert file.read() == generate.render_index()


def test_a_message_is_equal_to_one_of_the_same_fields_and_shows_them():
    assert ForgottenTopic(topic="a", partitions=[1]) == ForgottenTopic(topic="a", partitions=(1,))
    assert ForgottenTopic(topic="a") != ForgottenTopic(topic="b")
    # Two classes with the same fields are not equal.
    assert EpochEndOffset() != SnapshotId()
    assert repr(LeaderIdAndEpoch(leader_id=1)) == "LeaderIdAndEpoch(leader_id=1, leader_epoch=-1)"
    with pytest.raises(TypeError):
        hash(ForgottenTopic())
    with pytest.raises(TypeError, match="topics"):
        ForgottenTopic(topics=1)  # type: ignore[call-arg]


def test_a_class_has_a_slot_for_each_field_and_is_a_message():
    assert ForgottenTopic.__slots__ == tuple(name for name, *_ in ForgottenTopic.__fields__)
    assert type(ForgottenTopic) is type, (
        "a class without a metaclass, so that the core makes an instance in one step"
    )
    assert isinstance(ForgottenTopic(), Message)
    assert not isinstance("", Message)
    with pytest.raises(AttributeError):
        ForgottenTopic().nosuch = 1  # type: ignore[attr-defined]


def test_what_was_read_equals_what_was_built_by_hand_in_whatever_version():
    built = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    for version in versions_of(12):
        (data,) = client_codec(12, version).encode(built)
        read = request_codec(12, version).decode(bytes(data))
        assert read == built
        assert built == read
        assert repr(read) == repr(built)


def test_times_are_milliseconds_and_say_so():
    assert FetchRequest().max_wait_ms == 0
    assert PartitionData().error_code == 0


def test_a_version_has_its_own_fields_and_shows_the_defaults_of_the_others():
    old, new = at_version(0, 9, "request"), at_version(0, 13, "request")
    topic_of = {9: old.__wire__[-1].nested, 13: new.__wire__[-1].nested}
    assert [field.name for field in topic_of[9].__wire__] == ["name", "partition_data"]
    assert [field.name for field in topic_of[13].__wire__] == ["topic_id", "partition_data"]
    # Instances without any slot set, as a decoder allocates them.
    assert object.__new__(topic_of[9]).topic_id is None
    assert object.__new__(topic_of[13]).name == ""


def test_every_version_is_a_subclass_of_the_one_class():
    for version in versions_of(0):
        assert issubclass(at_version(0, version, "request"), ProduceRequest)
        assert issubclass(at_version(0, version, "response"), ProduceResponse)


def test_the_response_class_yields_where_both_sides_have_a_name():
    next_cursor = at_version(75, 0, "response").__wire__[-1].nested
    assert issubclass(next_cursor, ResponseCursor)


def test_an_unknown_version_is_refused():
    with pytest.raises(UnknownVersion):
        at_version(0, 2, "request")
    with pytest.raises(UnknownVersion):
        at_version(1000, 0, "request")


def test_a_shared_default_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PartitionData().current_leader.leader_id = 5  # type: ignore[misc]
    assert PartitionData().current_leader == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
