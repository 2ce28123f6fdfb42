"""Tests of the checks at the end of a run: each check detects a corrupted history."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from tests.simulation.ledger import Broken, Ledger, Verdict, View, check_copies

A, B = ("orders", 0), ("orders", 1)
Content = dict[tuple[str, int], list[tuple[int, bytes]]]


def story() -> tuple[Ledger, Content]:
    """A history of three transactions over two partitions: acknowledged, aborted, and with unknown outcome."""
    ledger = Ledger()
    content: Content = {A: [], B: []}
    for number, verdict in enumerate((Verdict.COMMITTED, Verdict.ABORTED, Verdict.UNKNOWN), 1):
        work = ledger.begin("old", number)
        for spot in (A, A, B):
            value = work.value(spot)
            if verdict is not Verdict.ABORTED:
                content[spot].append((len(content[spot]), value))
        work.verdict = verdict
    return ledger, content


def test_a_correct_history_passes():
    ledger, content = story()
    ledger.check_works(content)
    content[A] = [pair for pair in content[A] if b"old/3" not in pair[1]]
    content[B] = [pair for pair in content[B] if b"old/3" not in pair[1]]
    ledger.check_works(content)  # the third transaction may be invisible as a whole


def lose_one(content: Content) -> None:
    del content[A][1]


def lose_one_of_unknown(content: Content) -> None:
    del content[B][-1]


def lose_all_of_one(content: Content) -> None:
    del content[A][:2]
    del content[B][0]


def double(content: Content) -> None:
    content[A].append((9, content[A][0][1]))


def elsewhere(content: Content) -> None:
    content[B].append(content[A].pop())


def swap(content: Content) -> None:
    content[A][0], content[A][1] = content[A][1], content[A][0]


def show_aborted(content: Content) -> None:
    content[A] = [(0, b"old/2/0")]
    content[B] = []


def invent(content: Content) -> None:
    content[A].append((9, b"old/9/0"))


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lose_one, "only .* is visible of"),
        (lose_one_of_unknown, "only .* is visible of"),
        (lose_all_of_one, "acknowledged, but is not visible"),
        (double, "visible twice"),
        (elsewhere, "is visible of"),
        (swap, "comes after"),
        (show_aborted, "acknowledged|aborted"),
        (invent, "no client sent"),
    ],
)
def test_what_is_lost_duplicated_torn_or_out_of_order_is_found(
    tamper: Callable[[Content], None], message: str
):
    ledger, content = story()
    tamper(content)
    with pytest.raises(Broken, match=message):
        ledger.check_works(content)


def test_an_aborted_transaction_that_is_visible_as_a_whole_is_found():
    ledger, content = story()
    content[A] += [(7, b"old/2/0"), (8, b"old/2/1")]
    content[B] += [(7, b"old/2/2")]
    with pytest.raises(Broken, match=r"old/2 \(aborted\)"):
        ledger.check_works(content)


@pytest.mark.parametrize(
    "seen",
    [
        [(0, b"a"), (2, b"c")],  # a gap: a later record without the one before it
        [(0, b"x")],
        [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"gone")],
    ],
)
def test_a_reader_that_saw_something_else_than_what_is_there_is_found(seen):
    there = {A: [(0, b"a"), (1, b"b"), (2, b"c")]}
    for isolation, committed, everything in (
        ("read_committed", there, {A: seen}),
        ("read_uncommitted", {A: seen}, there),
    ):
        ledger = Ledger()
        ledger.view("r", A, isolation).saw(seen)
        with pytest.raises(Broken, match="saw"):
            ledger.check_views(committed, everything)


def test_a_reader_may_be_behind():
    ledger = Ledger()
    ledger.view("r", A, "read_committed").saw([(0, b"a")])
    ledger.check_views({A: [(0, b"a"), (1, b"b")]}, {A: []})


@pytest.mark.parametrize(("cuts", "twice"), [([], False), ([1], False), ([3], True), ([9], False)])
def test_a_batch_comes_twice_only_if_it_was_deleted_before(cuts, twice):
    ledger = Ledger()
    ledger.cuts[A] = cuts
    work = ledger.begin("p", 1)
    work.sent.append((A, b"a"))
    ledger.wrote([b"a"], 1)
    ledger.view("r", A, "read_uncommitted").saw([(5, b"a")])
    with nullcontext() if twice else pytest.raises(Broken, match="written at 1"):
        ledger.check_views({A: []}, {A: [(5, b"a")]}, {A: 3})


@pytest.mark.parametrize("after", [(9, 5), (10, 4), (10, 11)])
def test_offsets_of_one_epoch_do_not_go_back(after):
    view = View("read_committed")
    view.saw_offsets(A, 3, 10, 5)
    view.saw_offsets(A, 4, 8, 4)  # another leader may have a lower high watermark
    with pytest.raises(Broken, match="epoch 3"):
        view.saw_offsets(A, 3, *after)


def test_no_reader_gets_an_offset_twice():
    view = View("read_committed")
    view.saw([(0, b"a"), (2, b"b")])
    with pytest.raises(Broken, match="offset 2 after offset 2"):
        view.saw([(2, b"b")])


def test_a_record_that_was_seen_before_its_marker_was_committed_is_found():
    ledger = Ledger()
    view = ledger.view("r", A, "read_committed")
    view.saw([(0, b"a"), (1, b"b"), (3, b"c")], high_watermark=4)
    ledger.check_markers({A: {0: 2, 1: 2, 3: 3}})
    with pytest.raises(Broken, match=r"b'c'.*high watermark 4; the marker is at 5"):
        ledger.check_markers({A: {0: 2, 1: 2, 3: 5}})


@pytest.mark.parametrize(
    "copies",
    [
        [b"copy 0:0"],  # the offset was committed without its record
        [b"copy 0:0", b"copy 0:2", b"copy 0:5"],  # a record was copied without its offset
        [b"copy 0:0", b"copy 0:0", b"copy 0:2"],
        [b"copy 0:2", b"copy 0:0"],
    ],
)
def test_copies_and_the_committed_offset_agree(copies):
    read = [(0, b"a"), (2, b"b"), (5, b"c")]
    check_copies(A, 3, read, [b"copy 0:0", b"copy 0:2"])
    with pytest.raises(Broken, match="is consumed up to 3"):
        check_copies(A, 3, read, copies)
