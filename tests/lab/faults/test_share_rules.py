"""Rules on the requests of share groups: which they match, and what each action does to fetches and acknowledgements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from lab.faults import ActiveRule, Match
from protocol.errors import ErrorCode
from tests.support.share_group import ACCEPT, RELEASE, TOPIC, Member, ShareBroker

GROUPS = map("g{}".format, count())
ALL = (0, 4, 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareBroker]:
    with ShareBroker(tmp_path_factory.mktemp("broker")) as broker:
        broker.begin()
        yield broker


class Group:
    """A share group of its own for each test, and the rules of the test."""

    def __init__(self, broker: ShareBroker) -> None:
        self.broker = broker
        self.name = next(GROUPS)
        broker.initialize(self.name)
        self.first, self.second = broker.members("m1", "m2", group=self.name)

    def stage(self, rule: str) -> ActiveRule:
        return self.broker.stage(rule)

    def matches(self, rule: ActiveRule) -> int:
        return self.broker.call(lambda: rule.matches)

    def end(self) -> None:
        self.broker.call(self.broker.faults.clear)
        self.first.wire.close()
        self.second.wire.close()


@pytest.fixture
def group(server: ShareBroker) -> Iterator[Group]:
    group = Group(server)
    yield group
    group.end()


# ---- matching


def test_a_rule_acts_on_one_member(group: Group) -> None:
    group.stage(f"ShareFetch group={group.name} member=m1 -> error UNKNOWN_SERVER_ERROR")
    group.first.send_fetch()
    assert group.first.receive("share_fetch")["error_code"] == ErrorCode.unknown_server_error
    assert group.second.fetch() == [ALL]


def test_a_later_fetch_is_about_the_partitions_of_its_session_until_it_forgets_them(group: Group) -> None:
    rule = group.stage(f"ShareFetch topic={TOPIC} partition=0 -> delay 0ms")
    other = group.stage("ShareFetch topic=payments -> drop")
    group.first.fetch()
    group.first.fetch()
    group.first.fetch(forgets=True)
    assert group.matches(rule) == 3, "a request that forgets a partition names it"
    group.first.fetch()
    assert (group.matches(rule), group.matches(other)) == (3, 0)


def test_a_final_acknowledgement_is_about_the_partitions_of_its_session(group: Group) -> None:
    rule = group.stage(f"ShareAcknowledge topic={TOPIC} -> delay 0ms")
    group.first.fetch()
    group.first.ask(
        "share_acknowledge", 2, group_id=group.name, member_id="m1", share_session_epoch=1, topics=[]
    )
    assert group.matches(rule) == 0
    group.first.ask(
        "share_acknowledge", 2, group_id=group.name, member_id="m1", share_session_epoch=-1, topics=[]
    )
    assert group.matches(rule) == 1


def test_a_rule_acts_on_the_acknowledgement_of_one_offset(group: Group) -> None:
    rules = [
        group.stage(f"{api} group={group.name} topic={topic} offset=3 -> delay 0ms")
        for api in ("ShareAcknowledge", "ShareFetch")
        for topic in (TOPIC, "payments")
    ]
    group.first.fetch()
    assert group.first.acknowledge((0, 1, ACCEPT), (2, 2, RELEASE)) == 0
    assert group.first.acknowledge((2, 2, RELEASE)) == ErrorCode.invalid_record_state
    assert [group.matches(rule) for rule in rules] == [0] * 4
    assert group.first.acknowledge((3, 3, RELEASE)) == 0
    assert [group.matches(rule) for rule in rules] == [1, 0, 0, 0]
    assert group.first.fetch((4, 4, RELEASE)) == [(2, 3, 2)]
    group.first.fetch((2, 3, ACCEPT))
    assert [group.matches(rule) for rule in rules] == [1, 0, 1, 0]


def test_an_offset_must_be_in_a_partition_that_matches(group: Group) -> None:
    rule = group.stage(f"ShareAcknowledge group={group.name} partition=1 offset=0 -> drop")
    group.first.fetch()
    assert group.first.acknowledge((0, 4, ACCEPT)) == 0
    assert group.matches(rule) == 0


# ---- actions: an acknowledgement


@pytest.mark.parametrize("action", ["lose-request", "drop"])
def test_a_lost_acknowledgement_is_a_redelivery(group: Group, action: str) -> None:
    """The connection is closed as well, so the records are available at once."""
    group.stage(f"ShareAcknowledge group={group.name} offset=2 -> {action}")
    group.first.fetch()
    group.first.send_acknowledge((0, 4, ACCEPT))
    assert group.first.is_hung_up()
    assert group.second.fetch_until_acquired() == [(0, 4, 2)]


def test_an_acknowledgement_lost_silently_leaves_the_locks_until_they_run_out(group: Group) -> None:
    rule = group.stage(f"ShareAcknowledge group={group.name} -> lose-request silent")
    group.first.fetch()
    group.first.send_acknowledge((0, 4, ACCEPT))
    group.broker.reached(rule)
    assert group.second.fetch() == []
    group.broker.advance("1h", ["groups"])
    assert group.second.fetch() == [(0, 4, 2)]


def test_records_whose_acknowledgement_lost_its_answer_are_not_delivered_again(group: Group) -> None:
    group.stage(f"ShareAcknowledge group={group.name} -> lose-answer")
    group.first.fetch()
    group.first.send_acknowledge((0, 4, ACCEPT))
    assert group.first.is_hung_up()
    group.broker.advance("1h", ["groups"])
    assert group.second.fetch() == []


def test_an_error_leaves_the_records_acquired_and_the_session_as_it_was(group: Group) -> None:
    group.stage(f"ShareAcknowledge group={group.name} nth=1 -> error SHARE_SESSION_NOT_FOUND")
    group.first.fetch()
    group.first.send_acknowledge((0, 4, ACCEPT))
    answer = group.first.receive("share_acknowledge")
    assert (answer["error_code"], answer["responses"]) == (ErrorCode.share_session_not_found, [])
    assert group.second.fetch() == []
    group.first.epoch -= 1
    assert group.first.acknowledge((0, 4, ACCEPT)) == 0


def test_an_altered_error_of_a_partition(group: Group) -> None:
    group.stage(f"ShareAcknowledge group={group.name} -> answer error_code=INVALID_RECORD_STATE")
    group.first.fetch()
    group.first.send_acknowledge((0, 4, ACCEPT))
    answer = group.first.receive("share_acknowledge")
    codes = [answer["error_code"], answer["responses"][0]["partitions"][0]["error_code"]]
    assert codes == [ErrorCode.invalid_record_state] * 2, "in every entry that has such a field"


def test_the_error_of_acknowledging_in_a_fetch_has_a_name_of_its_own(group: Group) -> None:
    group.stage(
        f"ShareFetch group={group.name} offset=0 -> answer acknowledge_error_code=INVALID_RECORD_STATE"
    )
    group.first.fetch()
    group.first.send_fetch((0, 4, ACCEPT))
    answer = group.first.receive("share_fetch")
    partition = answer["responses"][0]["partitions"][0]
    codes = (answer["error_code"], partition["error_code"], partition["acknowledge_error_code"])
    assert codes == (0, 0, ErrorCode.invalid_record_state)


def test_a_delayed_acknowledgement(group: Group) -> None:
    group.stage(f"ShareAcknowledge group={group.name} -> delay 20s")
    group.first.fetch()
    group.first.send_acknowledge((0, 4, RELEASE))
    group.broker.advance("19s", ["requests"])
    assert group.second.fetch() == []
    group.broker.advance("1s", ["requests"])
    assert group.first.receive_acknowledged() == 0
    assert group.second.fetch() == [(0, 4, 2)]


def test_an_acknowledgement_that_is_handled_twice(group: Group) -> None:
    """The session epoch refuses the second copy, so that its records are not released twice."""
    group.stage(f"ShareAcknowledge group={group.name} -> duplicate")
    group.first.fetch()
    assert group.first.acknowledge((0, 4, RELEASE)) == 0
    assert group.second.fetch() == [(0, 4, 2)]
    assert group.first.fetch() == []


def test_a_held_acknowledgement_that_comes_after_the_end_of_its_locks(group: Group) -> None:
    rule = group.stage(f"ShareAcknowledge group={group.name} offset=0 -> hold")
    group.first.fetch()
    group.first.send_acknowledge((0, 4, ACCEPT))
    group.broker.reached(rule)
    held = group.broker.call(rule.to_json)["held"][0]
    assert (held["group"], held["member"], held["topic"], held["partition"]) == (group.name, "m1", TOPIC, 0)
    group.broker.advance("1h", ["groups"])
    assert group.second.fetch() == [(0, 4, 2)]
    assert group.broker.release(rule) == 1
    assert group.first.receive_acknowledged() == ErrorCode.invalid_record_state


def test_held_acknowledgements_are_released_by_member_and_offset(group: Group) -> None:
    rule = group.stage(f"ShareAcknowledge group={group.name} -> hold")
    assert group.first.fetch(max_records=1, batch_size=1, share_acquire_mode=1) == [(0, 0, 1)]
    assert group.second.fetch() == [(1, 4, 1)]
    group.first.send_acknowledge((0, 0, ACCEPT))
    group.second.send_acknowledge((1, 4, ACCEPT))
    group.broker.reached(rule, 2)
    release = group.broker.faults.release
    assert group.broker.call(lambda: release(rule.id, only=Match(member="m1", offset=1))) == 0
    assert group.broker.call(lambda: release(rule.id, only=Match(member="m2", offset=1))) == 1
    assert group.second.receive_acknowledged() == 0
    assert group.broker.call(lambda: release(rule.id, only=Match(offset=0))) == 1
    assert group.first.receive_acknowledged() == 0


def test_a_detached_acknowledgement_finds_its_session_gone(group: Group) -> None:
    """A share session ends with its connection, so a late acknowledgement changes nothing."""
    rule = group.stage(f"ShareAcknowledge member=m1 group={group.name} -> detach")
    group.first.fetch()
    group.first.send_acknowledge((0, 4, ACCEPT))
    assert group.first.is_hung_up()
    assert group.second.fetch_until_acquired() == [(0, 4, 2)]
    assert group.broker.release(rule) == 1
    group.broker.run(group.broker.cluster.settled())
    [released] = group.broker.call(rule.to_json)["released"]
    assert (released["outcome"], released["errors"]) == ("answered", ["SHARE_SESSION_NOT_FOUND"])
    assert group.second.acknowledge((0, 4, RELEASE)) == 0


def test_an_acknowledgement_that_is_handled_after_the_next_one(group: Group) -> None:
    rule = group.stage(f"ShareAcknowledge group={group.name} times=1 -> reorder")
    assert group.first.fetch(max_records=1, batch_size=1, share_acquire_mode=1) == [(0, 0, 1)]
    assert group.second.fetch() == [(1, 4, 1)]
    group.first.send_acknowledge((0, 0, ACCEPT))
    assert group.first.is_hung_up()
    assert group.second.acknowledge((1, 4, ACCEPT)) == 0
    [released] = group.broker.call(rule.to_json)["released"]
    assert released["errors"] == ["SHARE_SESSION_NOT_FOUND"]
    assert group.second.fetch_until_acquired() == [(0, 0, 2)]


# ---- actions: a fetch


@pytest.mark.parametrize("action", ["lose-answer", "lose-answer silent"])
def test_records_whose_fetch_lost_its_answer_are_acquired_and_delivered_again(
    group: Group, action: str
) -> None:
    rule = group.stage(f"ShareFetch group={group.name} member=m1 -> {action}")
    group.first.send_fetch()
    group.broker.reached(rule)
    group.broker.advance("1h", ["groups"])
    assert group.second.fetch_until_acquired() == [(0, 4, 2)]


def test_the_response_that_delivers_an_offset_is_lost(group: Group) -> None:
    """The rule counts responses: the fetches before deliver other records, or none."""
    rule = group.stage(
        f"ShareFetch group={group.name} topic={TOPIC} partition=0 acquired=3 nth=2 -> lose-answer"
    )
    limit = {"max_records": 3, "batch_size": 3, "share_acquire_mode": 1}
    assert group.first.fetch(**limit) == [(0, 2, 1)]
    assert group.second.fetch() == [(3, 4, 1)]
    assert group.first.fetch() == []
    assert group.matches(rule) == 1
    assert group.second.acknowledge((3, 3, RELEASE), (4, 4, ACCEPT)) == 0
    group.first.send_fetch()
    assert group.first.is_hung_up()
    assert group.matches(rule) == 2
    assert group.second.fetch_until_acquired() == [(0, 2, 2), (3, 3, 3)]


@pytest.mark.parametrize("where", ["topic=payments", "partition=1", "member=m2"])
def test_a_response_with_the_offset_of_another_partition(group: Group, where: str) -> None:
    rule = group.stage(f"ShareFetch group={group.name} {where} acquired=0 -> lose-answer")
    assert group.first.fetch() == [ALL]
    assert group.matches(rule) == 0


def test_only_fetches_of_share_groups_deliver_what_a_rule_on_all_apis_names(group: Group) -> None:
    rule = group.stage("* acquired=0 -> lose-answer")
    partition = [{"index": 7, "records": b""}]
    data = [{"name": TOPIC, "partition_data": partition}]
    group.first.ask("produce", 9, acks=-1, timeout=1000, transactional_id=None, topic_data=data)
    assert group.matches(rule) == 0
    group.first.send_fetch()
    assert group.first.is_hung_up()


def test_an_altered_response_by_what_it_delivers(group: Group) -> None:
    group.stage(f"ShareFetch group={group.name} acquired=0 -> answer throttle_time_ms=7")
    throttled = []
    for _ in range(2):
        group.first.send_fetch()
        throttled.append(group.first.receive("share_fetch")["throttle_time"])
    assert throttled == [7, 0]


def test_the_leader_dies_when_it_has_acquired(tmp_path: Path) -> None:
    with ShareBroker(tmp_path) as broker:
        broker.begin()
        (member,) = broker.members("m1")
        broker.stage("ShareFetch acquired=4 -> kill")
        member.send_fetch()
        assert member.is_hung_up()
        broker.call(broker.faults.clear)
        broker.run(broker.cluster.start_node(1))
        member.wire.close()
        (member,) = broker.members("m1")
        assert member.fetch_until_acquired() == [ALL], "an acquisition is not written"
        member.wire.close()


def test_a_lost_fetch_acquires_nothing(group: Group) -> None:
    group.stage(f"ShareFetch group={group.name} member=m1 -> lose-request")
    group.first.send_fetch()
    assert group.first.is_hung_up()
    assert group.second.fetch() == [ALL]


def test_a_fetch_that_is_handled_twice_renews_the_session(group: Group) -> None:
    """Epoch 0 a second time: a new session, and what the former one has acquired comes again."""
    group.stage(f"ShareFetch group={group.name} nth=1 -> duplicate")
    assert group.first.fetch() == [ALL]
    assert group.first.fetch((0, 4, ACCEPT)) == []


def test_a_held_fetch_acquires_when_it_is_released(group: Group) -> None:
    rule = group.stage(f"ShareFetch group={group.name} member=m1 -> hold")
    group.first.send_fetch()
    group.broker.reached(rule)
    assert group.second.fetch() == [ALL]
    assert group.second.acknowledge((1, 4, ACCEPT)) == 0
    assert group.second.acknowledge((0, 0, RELEASE)) == 0
    assert group.broker.release(rule) == 1
    assert group.first.receive_acquired() == [(0, 0, 2)]


@pytest.mark.parametrize("api", ["ShareFetch", "ShareAcknowledge"])
def test_the_leader_dies_at_a_request(tmp_path: Path, api: str) -> None:
    with ShareBroker(tmp_path) as broker:
        broker.begin()
        (member,) = broker.members("m1")
        assert member.fetch() == [ALL]
        broker.stage(f"{api} member=m1 offset=0 nth=1 -> kill")
        (member.send_fetch if api == "ShareFetch" else member.send_acknowledge)((0, 4, ACCEPT))
        assert member.is_hung_up()
        broker.run(broker.cluster.start_node(1))
        (member,) = broker.members("m1")
        assert member.fetch_until_acquired() == [ALL]
        member.wire.close()


# ---- the other APIs


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("ShareGroupHeartbeat member=m1 -> error UNKNOWN_MEMBER_ID", ErrorCode.unknown_member_id),
        ("ShareGroupHeartbeat topic=orders -> lose-request", None),
    ],
)
def test_a_heartbeat_by_its_group_member_and_topics(group: Group, rule: str, error: int | None) -> None:
    other = group.stage("ShareGroupHeartbeat member=m2 -> drop")
    group.stage(rule)
    body = {"group_id": group.name, "member_id": "m1", "member_epoch": 0, "subscribed_topic_names": [TOPIC]}
    member: Member = group.first
    member.send("share_group_heartbeat", 1, **body)
    if error is None:
        assert member.is_hung_up()
    else:
        assert member.receive("share_group_heartbeat", 1)["error_code"] == error
    assert group.matches(other) == 0


def test_a_description_by_its_group(group: Group) -> None:
    group.stage(f"ShareGroupDescribe group={group.name} -> error COORDINATOR_NOT_AVAILABLE")
    answer = group.first.ask(
        "share_group_describe", 1, group_ids=[group.name], include_authorized_operations=False
    )
    assert answer["groups"][0]["error_code"] == ErrorCode.coordinator_not_available


@pytest.mark.parametrize(
    ("api", "entry"),
    [
        ("initialize_share_group_state", {"state_epoch": 0, "start_offset": 0}),
        ("read_share_group_state", {"leader_epoch": 0}),
        ("write_share_group_state", {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0}),
        ("delete_share_group_state", {}),
        ("read_share_group_state_summary", {"leader_epoch": 0}),
    ],
)
def test_a_request_to_a_share_coordinator_by_group_and_partition(
    group: Group, api: str, entry: dict[str, int]
) -> None:
    if api.startswith("write"):
        entry = {**entry, "delivery_complete_count": 0, "state_batches": []}  # type: ignore[dict-item]
    topics = [{"topic_id": group.broker.topic_id, "partitions": [{"partition": 0, **entry}]}]
    name = "".join(word.title() for word in api.split("_"))
    group.stage(f"{name} group={group.name} topic={TOPIC} partition=1 -> drop")
    group.stage(f"{name} group={group.name} topic={TOPIC} partition=0 -> error NOT_COORDINATOR")
    version = 0 if api.startswith(("initialize", "read_share_group_state", "delete")) else 1
    answer = group.first.ask(api, version, group_id=group.name, topics=topics)
    assert answer["results"][0]["partitions"][0]["error_code"] == ErrorCode.not_coordinator
