"""Where a rule may stand in the way of a coordinator's append (`broker.hooks`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.hooks import Hooks, Passage
from broker.topics import TRANSACTION_STATE
from broker.transactions.home import Home, client_error
from protocol.errors import ErrorCode

PREPARE_APPEND: Final = "txn.prepare.append"
COMPLETE_APPEND: Final = "txn.complete.append"


def at_append(
    hooks: Hooks,
    point: str,
    home: Home,
    transactional_id: str,
    go_on: Callable[[], object],
    appended: Callable[[ErrorCode], object],
) -> None:
    """Append, unless a rule holds it up or has it fail: then ``appended`` hears what a client is told."""
    if hooks.points is None:
        go_on()
        return
    passage = Passage(
        point,
        home.leader_id,
        TRANSACTION_STATE,
        home.partition.index,
        transactional_id=transactional_id,
    )
    hooks.at_point(passage, go_on, lambda error: appended(client_error(error)))
