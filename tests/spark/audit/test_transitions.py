"""The transitions that the audit accepts are those of the coordinator."""

from __future__ import annotations

from broker.transactions.transaction import VALID_PREDECESSORS, TransactionState
from odradek.spark.audit import coordinator
from odradek.spark.segments.internal import STATES

IN_MEMORY_ONLY = {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


def test_the_audit_and_the_coordinator_know_the_same_transitions():
    written = set(VALID_PREDECESSORS) - IN_MEMORY_ONLY
    assert {name: set(before) for name, before in coordinator.VALID_PREDECESSORS.items()} == {
        state.wire_name: {before.wire_name for before in VALID_PREDECESSORS[state]} for state in written
    }


def test_the_numbers_of_states_in_files_are_the_coordinator_s():
    assert list(STATES) == [state.wire_name for state in sorted(TransactionState)]
