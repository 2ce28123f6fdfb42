"""How the process divides its file descriptors between connections and files."""

from __future__ import annotations

import pytest

from broker.resources.descriptors import CONTROL_CONNECTIONS_MAX, OPEN_FILES_MAX, OTHERS, ClientSlots, shares
from storage.descriptors import SPARE_DESCRIPTORS


@pytest.mark.parametrize("allowed", [256, 1024, 4096, 20_000, 1_048_576])
def test_the_shares_fit_what_is_allowed(allowed: int) -> None:
    share = shares(allowed)
    assert sum(share) + OTHERS + SPARE_DESCRIPTORS <= allowed
    assert share.clients >= allowed // 4
    assert share.files <= OPEN_FILES_MAX
    assert share.control <= CONTROL_CONNECTIONS_MAX


def test_files_that_are_set_leave_the_rest_to_clients() -> None:
    assert shares(1024, 100).clients > shares(1024, 500).clients


def test_however_few_there_are_some_client_is_served() -> None:
    assert shares(16).clients > 0


def test_who_waits_is_called_once_when_a_connection_has_gone() -> None:
    slots, called = ClientSlots(limit=1), []
    slots.open = 1
    assert not slots.has_room
    slots.wait(lambda: called.append(slots.has_room))
    slots.gone()
    assert called == [True]
    slots.open = 1
    slots.gone()
    assert called == [True]
