"""Requests that are repeated until they succeed or time out, many at once, each sent to the responsible broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odradek._protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.spark.wire import messages
from odradek.spark.wire.connection import Call
from odradek.spark.wire.errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_MOVED,
    REQUEST_TIMED_OUT,
    RETRIABLE,
    ConnectionLost,
    Retriable,
    WireError,
    gave_up,
    name_of,
    refused,
)
from odradek.spark.wire.messages import FIND_COORDINATOR, Api
from odradek.spark.wire.network import Network, Peer, backoff_seconds
from odradek.spark.wire.settings import ClientSettings

GROUP, TRANSACTION = 0, 1

Coordinator = tuple[int, str]

# Markers are written within milliseconds. Kafka's clients also have a short back-off here, of 20 ms
# (TransactionManager.java).
_CONCURRENT_BACKOFF_MS = 10
_CONCURRENT_BACKOFF_MAX_MS = 200
_PUMP_SECONDS_MAX = 1.0


class Refusal(Exception):
    """A response contains the error code ``code``. ``said`` is the broker's error message, if there is one."""

    def __init__(self, code: int, said: str | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.said = said


class Malformed(Exception):
    """A response lacks what was requested."""


class Exchange:
    """A request with its result.

    ``subject`` begins the messages of the request's errors. ``coordinator``: kind and key of the coordinator to
    which the request is sent; None for any broker.

    ``read`` takes the response and its version, and returns the result. ``read`` raises ``Refusal`` for an error code, and
    ``Malformed`` if the response lacks what was requested. A settled exchange has either a ``result`` or an ``error``.
    ``uncertain``: a response was lost, so the request may have been handled more than once.
    """

    def __init__(
        self,
        api: Api,
        subject: str,
        coordinator: Coordinator | None,
        request: Any,
        read: Callable[[Any, int], Any],
    ) -> None:
        self.api = api
        self.subject = subject
        self.coordinator = coordinator
        self.request = request
        self.read = read
        self.result: Any = None
        self.error: WireError | None = None
        self.settled = False
        self.uncertain = False
        self.call: Call | None = None
        self.attempts = 0
        self.failure = (REQUEST_TIMED_OUT, "no broker responded")
        self.due = 0.0

    def value(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def raise_for(codes: Iterable[int], said: str | None = None) -> None:
    """Raise ``Refusal`` if a code is not 0: for a final error if there is one, else for a retriable one."""
    bad = [int(code) for code in codes if code]
    if bad:
        # If one partition is rejected, the others get OPERATION_NOT_ATTEMPTED.
        raise Refusal(min(bad, key=lambda code: (code == 55, code in RETRIABLE)), said)


class Exchanges:
    """The runner of exchanges over a network, with a cache of coordinators."""

    def __init__(self, settings: ClientSettings, network: Network) -> None:
        self._settings = settings
        self._network = network
        self._coordinators: dict[Coordinator, int] = {}

    def run(self, exchanges: Sequence[Exchange], timeout_ms: int | None = None) -> None:
        """Send the requests, repeatedly, until each exchange has a result or an error. Raises no error itself.

        ``timeout_ms`` replaces ``delivery.timeout.ms``.
        """
        timeout_ms = timeout_ms or self._settings.delivery_timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        while open_ones := [each for each in exchanges if not each.settled]:
            now = time.monotonic()
            if now >= deadline:
                for each in open_ones:
                    self._give_up(each, timeout_ms)
                return
            self._send_due(open_ones, now)
            calls = [each.call for each in open_ones if each.call is not None]
            waiting = [each.due for each in open_ones if each.call is None and not each.settled]
            if (calls or waiting) and not any(call.done for call in calls):
                until = min([deadline, *waiting]) - time.monotonic()
                self._network.pump(min(max(until, 0), _PUMP_SECONDS_MAX))
            for each in open_ones:
                if each.call is not None and each.call.done:
                    self._take_answer(each)

    def ask_once(self, to: int | Peer, api: Api, request: Any) -> tuple[Any, int]:
        """Send a request once; return the response and its version.

        Raises ``Retriable`` if there was no response, and another ``WireError`` if it cannot be parsed.
        """
        call = self._network.submit(to, api, request)
        while not call.done:
            self._network.pump(_PUMP_SECONDS_MAX)
        if call.error is not None:
            raise call.error
        return call.answer, call.version

    # -- sending ------------------------------------------------------------------------------------------------

    def _send_due(self, exchanges: Sequence[Exchange], now: float) -> None:
        due = [each for each in exchanges if each.call is None and each.due <= now]
        wanted = {
            each.coordinator
            for each in due
            if each.coordinator is not None and each.coordinator not in self._coordinators
        }
        failures = self._find(wanted)
        for each in due:
            try:
                each.call = self._network.submit(self._whom(each, failures), each.api, each.request)
            except Retriable as error:
                self._forget_coordinator(each)
                self._again(each, REQUEST_TIMED_OUT, error.sentence)
            except Refusal as refusal:
                self._refused(each, refusal)
            except WireError as error:
                self._settle(each, error)

    def _whom(self, exchange: Exchange, failures: dict[Coordinator, Exception]) -> int | Peer:
        if exchange.coordinator is None:
            return self._network.anyone()
        if exchange.coordinator in failures:
            raise failures[exchange.coordinator]
        return self._coordinators[exchange.coordinator]

    def _find(self, wanted: Iterable[Coordinator]) -> dict[Coordinator, Exception]:
        """Look up the coordinators of groups and transactional ids; return the errors of those not found."""
        failures: dict[Coordinator, Exception] = {}
        for kind in (GROUP, TRANSACTION):
            keys = sorted(key for each, key in wanted if each == kind)
            while keys:
                try:
                    keys = keys[self._find_some(kind, keys, failures) :]
                except WireError as error:
                    failures |= {(kind, key): error for key in keys}
                    break
        return failures

    def _find_some(self, kind: int, keys: Sequence[str], failures: dict[Coordinator, Exception]) -> int:
        """Look up coordinators, and add errors to ``failures``. Return the number of keys in the request.

        Brokers before Kafka 3.0 accept one key in a request (KIP-699).
        """
        request = FindCoordinatorRequest(key=keys[0], key_type=kind, coordinator_keys=keys)
        peer = self._network.anyone()
        answer, version = self.ask_once(peer, FIND_COORDINATOR, request)
        asked = keys if version >= 4 else keys[:1]
        found = [(keys[0], answer)] if version < 4 else [(each.key, each) for each in answer.coordinators]
        for key in set(asked).difference(key for key, _ in found):
            broker = "{}:{}".format(*peer.address)
            failures[kind, key] = messages.cannot_be_read(
                FIND_COORDINATOR.name, broker, f"the coordinator of {key!r} is missing"
            )
        for key, each in found:
            if each.error_code:
                failures[kind, key] = Refusal(int(each.error_code), each.error_message)
            else:
                self._network.learn(each.node_id, each.host, each.port)
                self._coordinators[kind, key] = each.node_id
        return len(asked)

    # -- responses ----------------------------------------------------------------------------------------------

    def _take_answer(self, exchange: Exchange) -> None:
        call, exchange.call = exchange.call, None
        assert call is not None
        if call.error is not None:
            if not isinstance(call.error, ConnectionLost) or call.error.sent:
                exchange.uncertain = True
            if not isinstance(call.error, Retriable):
                self._settle(exchange, call.error)
                return
            self._forget_coordinator(exchange)
            self._again(exchange, REQUEST_TIMED_OUT, call.error.sentence)
            return
        try:
            exchange.result = exchange.read(call.answer, call.version)
            exchange.settled = True
        except Refusal as refusal:
            self._refused(exchange, refusal)
        except Malformed as error:
            self._settle(exchange, messages.cannot_be_read(call.api.name, call.broker, str(error)))

    def _refused(self, exchange: Exchange, refusal: Refusal) -> None:
        code = refusal.code
        if code not in RETRIABLE:
            self._settle(exchange, refused(code, exchange.subject, refusal.said))
            return
        if code in COORDINATOR_MOVED:
            self._forget_coordinator(exchange)
        self._again(exchange, code, name_of(code))

    def _again(self, exchange: Exchange, code: int, why: str) -> None:
        """Schedule the next attempt of the exchange, after a back-off."""
        exchange.attempts += 1
        exchange.failure = (code, why)
        settings = self._settings
        first, most = settings.retry_backoff_ms, settings.retry_backoff_max_ms
        if code == CONCURRENT_TRANSACTIONS:
            first, most = min(first, _CONCURRENT_BACKOFF_MS), min(most, _CONCURRENT_BACKOFF_MAX_MS)
        exchange.due = time.monotonic() + backoff_seconds(first, most, exchange.attempts)

    def _give_up(self, exchange: Exchange, timeout_ms: int) -> None:
        if exchange.call is not None:
            exchange.uncertain = True
        code, why = exchange.failure
        self._settle(exchange, gave_up(code, exchange.subject, timeout_ms, why))

    def _settle(self, exchange: Exchange, error: WireError) -> None:
        exchange.error = error
        exchange.settled = True

    def _forget_coordinator(self, exchange: Exchange) -> None:
        if exchange.coordinator is not None:
            self._coordinators.pop(exchange.coordinator, None)
