"""The generated message classes, and the class for one version that is derived from them."""

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.codec import client_codec, request_codec
from protocol.generators import kio_schemas
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
from tests.support.java import kafka_clients_jar

TXN_OFFSET_COMMIT = 28
UNREGISTER_CONTROLLER = 94


@pytest.fixture(scope="module")
def schemas() -> generate.Schemas:
    return generate.Schemas(kafka_clients_jar("4.4.0"))


@pytest.mark.more
def test_what_is_checked_in_is_what_the_generator_writes(schemas: generate.Schemas) -> None:
    folder = Path(index.__file__).parent
    expected = {f"{api}.py": generate.render(schemas, key) for key, api in schemas.apis.items()}
    expected["index.py"] = generate.render_index(schemas)
    found = {path.name: path.read_text() for path in folder.glob("*.py") if path.name != "__init__.py"}
    assert found == expected


@pytest.mark.more
def test_kio_and_kafka_declare_the_same_messages(schemas: generate.Schemas) -> None:
    """Rendering compares the versions that both have. Here a difference is staged."""
    one = kio_schemas.classes(TXN_OFFSET_COMMIT, 5, "request")[-1]
    other = replace(one, fields=(*one.fields[:-1], replace(one.fields[-1], name="partitions")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kio_schemas, "classes", lambda *_: [other])
        with pytest.raises(generate.Different, match="txn_offset_commit v5 request"):
            schemas.classes(TXN_OFFSET_COMMIT, 5, "request")


@pytest.mark.more
def test_versions_that_kio_lacks_come_from_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "FROM_KAFKA", {18: [5], TXN_OFFSET_COMMIT: [6], UNREGISTER_CONTROLLER: [0]})
    schemas = generate.Schemas(kafka_clients_jar("4.4.0"))
    assert (
        'cluster_id: str | None = field("string", 5, 5, nullable_since=5, default=None)'
        in generate.render(schemas, 18)
    )
    commit = generate.render(schemas, TXN_OFFSET_COMMIT)
    assert 'name: str = field("string", 0, 5, default="")' in commit
    assert 'topic_id: UUID | None = field("uuid", 6, 6, default=None)' in commit
    assert "class UnregisterControllerRequest(Message):" in generate.render(schemas, UNREGISTER_CONTROLLER)
    assert '94: ("unregister_controller", 0, 0, 0),' in generate.render_index(schemas)


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
