"""Random requests about share groups, in sessions, get a response, without an error or a delay for others.

python -m tests.fuzz.shares --seed 7 --frames 5000        # one stream again, with this length
"""

from __future__ import annotations

import pytest

from broker.share.partition import SharePartition
from tests.fuzz.playing import Failure
from tests.fuzz.shares import fuzz
from tests.fuzz.test_frames import SEEDS


def test_a_stream_of_requests():
    work = fuzz(seed=1, frames=80)
    assert work.requests.acquired > 10
    assert work.requests.acknowledged > 10


def test_a_share_partition_that_fails_is_found(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(SharePartition, "commit", broken)
    with pytest.raises(Failure, match=r"frame \d+ \(share_.*a defect"):
        fuzz(seed=1, frames=300)


@pytest.mark.more
def test_a_longer_stream():
    fuzz(seed=2, frames=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_long_streams(seed: int):
    fuzz(seed, frames=5_000)
