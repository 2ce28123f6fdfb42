"""A request of a connection whose handler is suspended.

When the handler ends, the connection responds in the next turn of the event loop, and continues with the next request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.loop.life import LifeOver
from broker.net.calls import CallEvent
from broker.net.holds import CLOSED, IN_PROGRESS
from broker.requests.api import CloseConnection
from broker.requests.parking import ParkedHere

if TYPE_CHECKING:
    from broker.loop.coroutines import Suspended
    from broker.net.calls import Call
    from broker.net.routes import Route
    from broker.net.served_connection import ServedConnection


class WaitingRequest:
    """A request whose handler is suspended. It receives the handler's result, and events of the client's connection."""

    __slots__ = ("_call", "_connection", "_correlation_id", "_outcome", "_route", "_suspended")

    def __init__(
        self,
        connection: ServedConnection,
        route: Route,
        correlation_id: int,
        call: Call | None,
        suspended: Suspended,
    ) -> None:
        self._connection = connection
        self._route = route
        self._correlation_id = correlation_id
        self._call = call
        self._outcome: object = None
        self._suspended = suspended
        suspended.tell(self)

    def give_way(self) -> None:
        """Make a parked request respond early, because another request follows on the connection."""
        parked = self._suspended.waits_at
        if isinstance(parked, ParkedHere):
            parked.give_way()

    def client_gone(self) -> None:
        """End a parked request, because the client disconnected. A request that is not parked is still handled, and its
        failure is logged.
        """
        self._note_gone()
        parked = self._suspended.waits_at
        if isinstance(parked, ParkedHere):
            parked.client_gone()

    def done(self) -> bool:
        return False

    def set_result(self, result: Any) -> None:
        self._outcome = result
        self._connection._shared.loop.call_soon(self._respond)

    set_exception = set_result

    def _respond(self) -> None:
        connection = self._connection
        # Not kept in the attribute: the traceback of an exception may refer back to this request.
        outcome, self._outcome = self._outcome, None
        connection._pending = None
        connection.last_active_tick = connection._shared.tick
        if isinstance(outcome, asyncio.CancelledError):
            outcome = CloseConnection("the request was cancelled")
        if not connection._holds & CLOSED:
            connection._answer(self._route, self._correlation_id, outcome, self._call)
            connection._lift(IN_PROGRESS)
            return
        self._note_gone()
        if isinstance(outcome, Exception) and not isinstance(outcome, (CloseConnection, LifeOver)):
            self._route.log_failure(connection.connection_id, outcome)

    def _note_gone(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.note(CallEvent.GONE)
