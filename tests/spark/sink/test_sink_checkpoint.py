"""Tests of ``has_unwritten_batch``: a checkpoint has a batch that is not written yet while Spark plans a micro-batch."""

import pytest

from odradek.spark.sink.checkpoint import Checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """A function that makes a checkpoint with these files in ``offsets`` and ``commits``, and returns its path."""

    def make(offsets=(), commits=()):
        path = tmp_path / "checkpoint"
        for log, numbers in (("offsets", offsets), ("commits", commits)):
            (path / log).mkdir(parents=True)
            for number in numbers:
                (path / log / str(number)).touch()
                (path / log / f".{number}.crc").touch()
        return path

    return make


@pytest.mark.parametrize(
    ("offsets", "commits"),
    [((), ()), ((0, 1, 9, 10), (0, 1, 9, 10)), ((3,), (2, 3))],
    ids=["first run", "restart", "purged"],
)
def test_without_a_new_batch_there_is_none_to_write(checkpoint, offsets, commits):
    path = checkpoint(offsets, commits)
    for location in (f"{path}", f"{path}/", f"file:{path}", f"file://{path}"):
        assert Checkpoint(location).has_unwritten_batch() is False


@pytest.mark.parametrize(
    ("offsets", "commits"),
    [((0,), ()), ((8, 9, 10), (8, 9)), ((10,), ())],
    ids=["first batch", "purged", "lost commits"],
)
def test_a_batch_is_to_be_written_from_offsets_to_commits(checkpoint, offsets, commits):
    assert Checkpoint(str(checkpoint(offsets, commits))).has_unwritten_batch() is True


def test_a_checkpoint_elsewhere_is_not_judged(tmp_path, monkeypatch):
    """The result is None if the checkpoint is not in the local file system, or has no known location."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    for location in (None, "hdfs:/here", "s3a://bucket/here", "/nowhere", "here"):
        assert Checkpoint(location).has_unwritten_batch() is None


def test_a_relative_checkpoint_is_below_the_directory_of_the_driver(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint()
    assert Checkpoint("checkpoint").has_unwritten_batch() is False
