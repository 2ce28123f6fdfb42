"""Operations on transactions: list them, show a timeline across all nodes, wait for a state, abort."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from broker.transactions.transaction import NAMED_STATES
from lab.control.errors import HttpError
from lab.control.forms import WAIT_MS_MAX, Given, View
from lab.control.operations import operation
from lab.control.ports import Control, Looking
from lab.faults.values import there_is
from lab.trace.scanning import UnknownTransaction

ID_CHARACTERS_MAX: Final = 2**15 - 1
"""Largest number of characters of a transactional id: the longest string of the Kafka protocol."""


class TransactionView(View):
    transactional_id: str
    state: str
    """The state by Kafka's name: Empty, Ongoing, PrepareCommit, …"""
    producer_id: int
    producer_epoch: int
    coordinator: int
    """The node that coordinates the transactional id."""
    timeout_ms: int
    start_ms: int | None
    """Start of the open transaction, in milliseconds since the epoch; null if no transaction is open."""
    open_ms: int | None
    """How long the transaction has been open, as its timeout counts: by the broker's clock, which may have been advanced."""
    last_update_ms: int | None
    partitions: list[str]
    """The partitions of the transaction: topic-partition."""


class TransactionsView(View):
    transactions: list[TransactionView]


class TimelineView(View):
    timeline: dict[str, Any]
    """The timeline as JSON, in the form of lab/trace/README.md."""
    text: str
    """The timeline as a table of text."""


class OneTransaction(Given):
    transactional_id: Annotated[
        str, Meta(max_length=ID_CHARACTERS_MAX, description="The transactional id, as its producer has it.")
    ]


class WaitedTransactionView(View):
    reached: bool
    transaction: TransactionView | None
    """Null if no coordinator knows the transactional id."""


class WaitForState(OneTransaction):
    state: Annotated[
        str,
        Meta(
            max_length=ID_CHARACTERS_MAX,
            description="State by Kafka's name: Ongoing, CompleteCommit, …; several separated by commas.",
        ),
    ]
    timeout_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX, description="Longest wait.")] = 10_000


_EXAMPLE: Final = {
    "transactional_id": "payments",
    "state": "Ongoing",
    "producer_id": 1000,
    "producer_epoch": 4,
    "coordinator": 1,
    "timeout_ms": 60000,
    "start_ms": 1795291007000,
    "open_ms": 250,
    "last_update_ms": 1795291007000,
    "partitions": ["orders-0", "orders-2"],
}


@operation("GET", "/v1/transactions", answer_example={"transactions": [_EXAMPLE]})
async def list_transactions(control: Looking) -> TransactionsView:
    """List the transactional ids of all coordinators with their states and partitions."""
    found = await control.transactions.list()
    return TransactionsView(transactions=msgspec.convert(found, type=list[TransactionView]))


@operation(
    "GET",
    "/v1/transactions/{transactional_id}/wait",
    answer_example={"reached": True, "transaction": {**_EXAMPLE, "state": "CompleteCommit"}},
    may_wait=True,
)
async def wait_for_transaction(control: Control, params: WaitForState) -> WaitedTransactionView:
    """Wait until a transactional id is in a state. If the timeout expires first, the field reached is false.

    The transactional id need not exist yet. The response shows the transaction in the awaited state, even if the
    transactional id has left that state since.
    """
    states = [state.strip() for state in params.state.split(",")]
    for state in states:
        if state not in NAMED_STATES:
            raise HttpError(400, there_is("the state", state, NAMED_STATES))
    reached, found = await control.awaited_states.reached(params.transactional_id, states, params.timeout_ms)
    return msgspec.convert({"reached": reached, "transaction": found}, type=WaitedTransactionView)


@operation(
    "GET",
    "/v1/transactions/{transactional_id}/timeline",
    answer_example={
        "timeline": {"transactional_id": "payments", "transactions": [], "events": [], "scanned": []},
        "text": "12:00:01.250 node 1 Ongoing orders-0 …",
    },
    may_wait=True,
)
async def show_timeline(control: Looking, params: OneTransaction) -> TimelineView:
    """Show the timeline of a transactional id across all nodes: each state, partition, batch and marker, with times."""
    try:
        found = await control.transactions.timeline(params.transactional_id)
    except UnknownTransaction as error:
        raise HttpError(404, str(error)) from None
    # Formatting a long timeline takes longer than a turn of the event loop may.
    return await asyncio.to_thread(lambda: TimelineView(timeline=found.to_json(), text=found.to_text()))


@operation(
    "POST",
    "/v1/transactions/{transactional_id}/abort",
    answer_example={**_EXAMPLE, "state": "PrepareAbort"},
    may_wait=True,
)
async def abort_transaction(control: Control, params: OneTransaction) -> TransactionView:
    """Abort the open transaction of a transactional id, and fence its producer.

    The response comes when the abort is decided; the state is PrepareAbort until each partition has its marker.
    """
    from lab.control import node_requests  # rarely used

    transactional_id = params.transactional_id
    for node in control.cluster.running_nodes():
        txn = next(
            (each for each in node.transactions.known() if each.transactional_id == transactional_id), None
        )
        if txn is not None:
            break
    else:
        raise HttpError(404, f"no running coordinator knows the transactional id {transactional_id}")
    if txn.state.wire_name != "Ongoing":
        raise HttpError(
            409, f"{transactional_id} has no open transaction: its state is {txn.state.wire_name}"
        )
    await node_requests.abort(control.cluster, node, transactional_id, txn.timeout_ms)
    found = (
        each for each in await control.transactions.list() if each["transactional_id"] == transactional_id
    )
    view = next(found, None)
    if view is None:
        raise HttpError(409, f"{transactional_id}: its coordinator has changed meanwhile, try again")
    return msgspec.convert(view, type=TransactionView)
