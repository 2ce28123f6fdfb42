"""The transactions of a running broker, through the control port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from odradek.asynchronous import asynchronous
from odradek.control_client import ControlClient, in_path
from odradek.errors import HIDDEN_IN_TRACEBACKS, TransactionNotReached
from odradek.nearest import did_you_mean, listed
from odradek.printable import printable
from odradek.waiting import WAIT_S, hint_of_coroutine, slices_ms
from odradek.words import TransactionState

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

PREPARED: Final[tuple[TransactionState, ...]] = ("PrepareCommit", "PrepareAbort")
"""The states of a decided transaction that waits for its markers."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id, as its coordinator reports it."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    coordinator: int
    """Node id of the coordinator."""
    timeout_ms: int
    start_ms: int | None
    """Time at which the transaction started, in ms since the epoch; None if no transaction is open."""
    open_ms: int | None
    """How long the transaction has been open, by the broker's clock, which can be advanced; None if none is open.

    This time counts towards the transaction timeout.
    """
    last_update_ms: int | None
    partitions: tuple[str, ...]
    """The partitions of the transaction, such as ``orders-0``."""


class Transactions:
    """All transactional ids that the coordinators know."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client

    def list(self) -> list[Transaction]:
        found = self.client.get("/v1/transactions")["transactions"]
        return [_transaction(each) for each in found]

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self.list())

    def __getitem__(self, transactional_id: str) -> Transaction:
        """The state of the transactional id. Raises ``KeyError`` if no coordinator knows the id."""
        for each in self.list():
            if each.transactional_id == transactional_id:
                return each
        raise KeyError(transactional_id)

    def wait(
        self,
        transactional_id: str,
        state: TransactionState | Iterable[TransactionState] = "CompleteCommit",
        timeout_s: float = WAIT_S,
    ) -> Transaction:
        """Wait until a transactional id is in one of the states. Returns the transaction as it was at that moment.

        The states have Kafka's names: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort. The id
        need not exist yet. Raises ``TransactionNotReached`` after the timeout.
        """
        states = state if isinstance(state, str) else ",".join(state)
        found: dict[str, Any] = {}
        for slice_ms in slices_ms(timeout_s):
            query = {"state": states, "timeout_ms": slice_ms}
            found = self.client.get(f"/v1/transactions/{in_path(transactional_id)}/wait", query)
            if found["reached"]:
                return _transaction(found["transaction"])
        last = found["transaction"]
        now = "unknown" if last is None else last["state"]
        raise TransactionNotReached(
            f"{printable(transactional_id)}: {now}, not {states}, after {timeout_s} s"
            + ("" if last is not None else self._known_instead_of(transactional_id))
            + hint_of_coroutine("transactions.wait")
        )

    wait_async = asynchronous(wait)

    def _known_instead_of(self, transactional_id: str) -> str:
        known = [each.transactional_id for each in self.list()]
        return f"; known: {listed(known)}{did_you_mean(transactional_id, known)}"


def _transaction(view: dict[str, Any]) -> Transaction:
    return Transaction(**{**view, "partitions": tuple(view["partitions"])})


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of a transactional id or a share group: ``str()`` returns a table, ``timeline`` has the events."""

    timeline: dict[str, Any]
    text: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self.timeline["events"])

    def __str__(self) -> str:
        return self.text
