"""meta.properties: which cluster and which node a log directory belongs to."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from broker.cluster.directories import WrongNodes, node_directories
from broker.metadata.files import WrongDirectory, identify, parse_properties, voted_epoch
from storage.files import StorageError

NOW_MS = 1_795_269_140_000
KAFKAS = """#
#Sat Nov 21 13:52:20 UTC 2026
node.id=1
directory.id=EgAi-3tIaGwXn4U8Z0GUnA
version=1
cluster.id=AAAAAAAAAAAAAAAAAAAAAQ
"""


class Ids:
    def __init__(self) -> None:
        self.next = 0

    def __call__(self) -> UUID:
        self.next += 1
        return UUID(int=self.next << 64)


def open_directory(path, node_id=1, cluster_id=None):
    return identify(path, node_id, cluster_id=cluster_id, new_id=Ids(), now_ms=NOW_MS)


def test_a_new_directory_is_formatted_as_by_kafka(tmp_path):
    identity = open_directory(tmp_path)
    assert (tmp_path / "meta.properties").read_text() == (
        "#\n#Sat Nov 21 13:52:20 UTC 2026\nnode.id=1\n"
        f"directory.id=AAAAAAAAAAIAAAAAAAAAAA\nversion=1\ncluster.id={identity.cluster_id}\n"
    )
    assert identity.cluster_id == "AAAAAAAAAAEAAAAAAAAAAA"
    assert open_directory(tmp_path) == identity


def test_a_directory_is_made_if_need_be(tmp_path):
    open_directory(tmp_path / "deep" / "down")
    assert (tmp_path / "deep" / "down" / "meta.properties").exists()


def test_a_cluster_id_may_be_chosen_for_a_new_directory_only(tmp_path):
    assert open_directory(tmp_path, cluster_id="chosen").cluster_id == "chosen"
    assert open_directory(tmp_path, cluster_id="another").cluster_id == "chosen"


def test_kafkas_own_file_is_read(tmp_path):
    (tmp_path / "meta.properties").write_text(KAFKAS)
    identity = open_directory(tmp_path)
    assert identity.cluster_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert identity.directory_id.bytes.hex() == "120022fb7b48686c179f853c6741949c"
    assert (tmp_path / "meta.properties").read_text() == KAFKAS


def test_a_directory_from_before_kafka_3_7_gets_its_id(tmp_path):
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    identity = open_directory(tmp_path)
    assert identity.directory_id == UUID(int=1 << 64)
    assert open_directory(tmp_path) == identity


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=0\nbroker.id=1\ncluster.id=c\n", "ZooKeeper era"),
        ("broker.id=1\n", "version 0"),
        ("version=1\nnode.id=2\ncluster.id=c\n", "belongs to node 2, not to node 1"),
        ("version=1\ncluster.id=c\n", "does not name the node.id"),
        ("version=1\nnode.id=1\n", "does not name the cluster.id"),
    ],
)
def test_other_directories_are_refused_with_a_sentence(tmp_path, text, message):
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(WrongDirectory, match=message):
        open_directory(tmp_path)


def test_properties_are_read_as_java_writes_them():
    assert parse_properties("! x\n# y\n\n a = b \nc=d=e\nf=http\\://h\n") == {
        "a": "b",
        "c": "d=e",
        "f": "http://h",
    }


def test_a_broken_vote_is_refused(tmp_path):
    assert voted_epoch(tmp_path) == 0
    (tmp_path / "quorum-state").write_text("{")
    with pytest.raises(WrongDirectory, match="quorum-state cannot be read"):
        voted_epoch(tmp_path)


@pytest.mark.parametrize("folder", ["orders-0", "__cluster_metadata-0"])
def test_logs_without_meta_properties_are_refused_as_by_kafka(tmp_path, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "00000000000000000000.log").touch()
    with pytest.raises(WrongDirectory, match=r"No `meta.properties` found in .* which contains logs"):
        open_directory(tmp_path)
    assert not (tmp_path / "meta.properties").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (bytes(40), "is empty"),
        (b"#\n#Sat Nov 21\n", "is empty"),
        (b"\xff\xfe", "cannot be read"),
        (b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=x\n", "invalid directory.id"),
    ],
)
def test_damaged_meta_properties_get_a_true_sentence(tmp_path, content, message):
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(WrongDirectory, match=message) as refused:
        open_directory(tmp_path)
    assert "ZooKeeper" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/proc/nope/x", "/proc/nope.*No such file"),
        ("/proc/x", "No such file"),
        ("/dev/null", "is not a directory"),
        ("/dev/null/x/y", "Not a directory"),
    ],
)
def test_a_directory_that_cannot_be_made_is_an_error_with_its_name(path, message):
    with pytest.raises(StorageError, match=message):
        open_directory(Path(path))


def test_a_node_directory_without_meta_properties_still_counts_as_one(tmp_path):
    for node_id in (1, 2, 3):
        folder = tmp_path / f"node-{node_id}" / "orders-0"
        folder.mkdir(parents=True)
        (folder / "00000000000000000000.log").touch()
        if node_id != 2:
            (tmp_path / f"node-{node_id}" / "meta.properties").touch()
    assert list(node_directories(tmp_path, [1, 2, 3])) == [1, 2, 3]
    with pytest.raises(WrongNodes, match="3 nodes"):
        node_directories(tmp_path, [1])
