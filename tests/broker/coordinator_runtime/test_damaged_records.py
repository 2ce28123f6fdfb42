"""Which groups or transactional ids a damaged record may belong to, and the cost of finding them."""

from __future__ import annotations

import pytest

from broker.coordinator_runtime.damaged_records import LINES_MAX, DamagedRecords, names_in
from protocol.records.group_log import OffsetCommitKey
from protocol.records.transaction_log import TransactionLogKey
from storage.salvage import Damaged

NAMES = ["payments", "orders", "\u00e4\u00f6", "\x08payments"]


def stretch(content: bytes) -> Damaged:
    return Damaged("file", 0, len(content), 0, 1, "damaged", content)


def test_the_known_names_are_asked_for_once() -> None:
    """The known group ids are listed once for all damaged batches: there may be 100,000 ids and as many batches."""
    asked: list[int] = []

    def known() -> list[str]:
        asked.append(1)
        return NAMES

    damaged = DamagedRecords("t", 0, "groups", lambda key: None, known)
    for _ in range(LINES_MAX * 3):
        damaged.note(stretch(b""))
    assert len(asked) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_wherever_its_key_begins(name: str) -> None:
    for key in (TransactionLogKey(name).encode(), OffsetCommitKey(name, "topic", 3).encode()):
        for before in (b"", b"\0", b"\0\x08", bytes(range(256))):
            assert name in names_in(before + key + b"\0\x06order", NAMES)


@pytest.mark.parametrize("content", [b"", b"payments", b"\0\x08payment", bytes(1000)])
def test_other_bytes_name_nothing(content: bytes) -> None:
    assert names_in(content, ["", *NAMES]) == set()
