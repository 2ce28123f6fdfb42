"""Share groups on three nodes: coordinators, leaders and share coordinators are on different nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.features import SHARE_VERSION
from tests.support.clients import eventually
from tests.support.in_process import InProcess
from tests.support.raw import Wire, decode_response, encode_request

PARTITIONS = 6
GROUPS = ("g0", "g1", "g2")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcess]:
    settings = {
        "offsets.topic.num.partitions": 3,
        "share.coordinator.state.topic.num.partitions": 6,
        "share.coordinator.state.topic.replication.factor": 3,
    }
    with InProcess(tmp_path, "--nodes", "3", "--topic", f"t:{PARTITIONS}", settings=settings) as broker:
        broker.call(lambda: broker.cluster.metadata.image.features.update({SHARE_VERSION: 2}))
        yield broker


class Client(Wire):
    """A connection to the coordinator of one group."""

    def __init__(self, broker: InProcess, group: str) -> None:
        self.broker, self.group = broker, group
        super().__init__("127.0.0.1", broker.cluster.first.listeners[0].port)
        with closing(self):
            found = eventually(self._coordinator)
        super().__init__(found["host"], found["port"])

    def _coordinator(self) -> dict[str, Any]:
        (found,) = self.ask("find_coordinator", 4, key_type=0, coordinator_keys=[self.group])["coordinators"]
        return found if found["error_code"] == 0 else {}

    def ask(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        self.send_frame(encode_request(api, version, body, 1))
        return decode_response(api, version, self.receive_frame())[1]

    def beat(self, epoch: int, names: list[str] | None = None) -> dict[str, Any]:
        return self.ask(
            "share_group_heartbeat",
            1,
            group_id=self.group,
            member_id="m",
            member_epoch=epoch,
            subscribed_topic_names=names,
        )

    def join(self) -> dict[str, Any]:
        """Join, once the coordinator has loaded its partition."""
        return eventually(lambda: found if (found := self.beat(0, ["t"]))["error_code"] == 0 else {})

    def assigned(self) -> list[dict[str, Any]]:
        self.broker.advance("1s", ["groups"])
        topics: list[dict[str, Any]] = self.beat(0, ["t"])["assignment"]["topic_partitions"]
        return topics

    def alter(self, offsets: dict[int, int]) -> set[int]:
        partitions = [{"partition_index": index, "start_offset": offset} for index, offset in offsets.items()]
        topics = [{"topic_name": "t", "partitions": partitions}]
        found = self.ask("alter_share_group_offsets", 0, group_id=self.group, topics=topics)
        return {each["error_code"] for each in found["responses"][0]["partitions"]}

    def describe(self) -> dict[int, tuple[int, int, int]]:
        """Partition -> (start offset, lag, error)."""
        groups = [{"group_id": self.group, "topics": None}]
        (found,) = self.ask("describe_share_group_offsets", 1, groups=groups)["groups"]
        assert found["error_code"] == 0
        return {
            each["partition_index"]: (each["start_offset"], each["lag"], each["error_code"])
            for topic in found["topics"]
            for each in topic["partitions"]
        }


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_from_its_birth_to_its_deletion(broker: InProcess, group: str) -> None:
    with closing(Client(broker, group)) as client:
        assert client.join()["member_epoch"] == 2
        (topic,) = eventually(client.assigned)
        assert topic["partitions"] == list(range(PARTITIONS))
        assert client.beat(-1)["error_code"] == 0
        assert client.describe() == dict.fromkeys(range(PARTITIONS), (-1, -1, 0))
        offsets = {index: -10 - index for index in range(PARTITIONS)}
        assert client.alter(offsets) == {0}
        # The end offset of each partition is 0: the lag comes from the leaders, on all three nodes.
        assert client.describe() == {index: (offset, -offset, 0) for index, offset in offsets.items()}
        topics = [{"topic_name": "t"}]
        (deleted,) = client.ask("delete_share_group_offsets", 0, group_id=group, topics=topics)["responses"]
        assert deleted["error_code"] == 0
        assert client.describe() == {}
        (gone,) = client.ask("delete_groups", 2, groups_names=[group])["results"]
        assert gone["error_code"] == 0
        assert client.beat(5)["error_message"] == f"Share group {group} not found."
