"""Tests of the control calls' ledger: the effect of reset, restore and snapshot on the expected content."""

from __future__ import annotations

import pytest

from tests.simulation.control import Call, Contents, ControlLedger, current
from tests.simulation.controlled import ENDING, TOPIC, Answer
from tests.simulation.ledger import Broken


class View:
    id = 1


def written(ledger: ControlLedger, *values: str) -> None:
    for value in values:
        with ledger.writes(value) as acknowledged:
            acknowledged()


def snapshot(ledger: ControlLedger) -> None:
    call = Call("snapshot")
    current.set(call)
    ledger.on_capture()
    ledger.ended(call, Answer("", View()))


def killed(ledger: ControlLedger, act: str, refusal: str = "") -> None:
    call = Call(act, 1 if act == "restore" else None)
    current.set(call)
    ledger.on_all_killed()
    ledger.ended(call, Answer(refusal))


def test_a_restore_brings_back_what_a_snapshot_had_and_a_reset_takes_all():
    ledger = ControlLedger()
    written(ledger, "a")
    snapshot(ledger)
    written(ledger, "b")
    killed(ledger, "restore")
    assert ledger.records == Contents({"a"}, {"a"})
    killed(ledger, "reset")
    assert (ledger.records, ledger.topics) == (Contents(), Contents({TOPIC}, {TOPIC}))


def test_a_restore_that_the_end_of_the_broker_cuts_off_has_changed_nothing():
    ledger = ControlLedger()
    snapshot(ledger)
    written(ledger, "a")
    killed(ledger, "restore", ENDING)
    assert ledger.records == Contents({"a"}, {"a"})


def test_an_acknowledgement_from_before_a_reset_guarantees_nothing():
    ledger = ControlLedger()
    with ledger.writes("a") as acknowledged:
        killed(ledger, "reset")
        acknowledged()
    assert ledger.records == Contents()


def test_a_topic_whose_creation_a_reset_overtakes_may_be_there():
    ledger = ControlLedger()
    with ledger.creates("extra") as acknowledged:
        killed(ledger, "reset")
        acknowledged()
    assert ledger.topics == Contents({TOPIC}, {TOPIC, "extra"})


@pytest.mark.parametrize(("found", "said"), [({"b"}, "lost: .'a'"), ({"a", "c"}, "should have removed.*'c'")])
def test_lost_and_restored_records_are_violations(found: set[str], said: str):
    contents = Contents({"a"}, {"a", "b"})
    contents.check({"a", "b"}, "records")
    with pytest.raises(Broken, match=said):
        contents.check(found, "records")
