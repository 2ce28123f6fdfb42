"""Throttling of clients that exceed their quotas: the response has the throttle time, and the connection is muted (KIP-219).

The interceptor (`broker.net.calls`) is installed only while quotas are set, so that requests cost nothing without quotas. It
is the last interceptor, so that it does not count requests that another one holds.
"""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

from broker.clock import Domain
from broker.metadata.client_quotas import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from broker.metadata.image import Image
from broker.metadata.listeners import MetadataListener
from broker.net.calls import Call, CallInterceptors, ClientConnection
from broker.requests.api import NO_RESPONSE
from protocol.slotted import slotted

PRODUCE: Final = 0
FETCH: Final = 1
WRITE_TXN_MARKERS: Final = 27
NS_PER_PERCENT: Final = 10_000_000
"""One percent of a thread's time, in nanoseconds per second. Request quotas count such percents."""


@slotted
class _Muted:
    """The state of a muted connection: the request that has arrived since the connection was muted, or None."""

    next_call: Call | None = None


class _Handling:
    """Stopwatch for the time that the event loop spends on a request whose handler does not suspend."""

    __slots__ = ("_began_ns", "_has_waited")

    def __init__(self) -> None:
        self._has_waited = False
        asyncio.get_running_loop().call_soon(self._wait)
        self._began_ns = perf_counter_ns()

    def _wait(self) -> None:
        self._has_waited = True

    @property
    def took_ns(self) -> int:
        """Nanoseconds since the request arrived; 0 if the handler has suspended, since its time is then not known."""
        return 0 if self._has_waited else perf_counter_ns() - self._began_ns


class Throttling:
    """Interceptor that counts requests against quotas, and mutes connections of clients that exceed them."""

    def __init__(self) -> None:
        self._muted: dict[ClientConnection, _Muted] = {}

    def wants(self, api_key: int) -> bool:
        return True

    def arrived(self, call: Call) -> bool:
        muted = self._muted.get(call.connection)
        if muted is not None:
            muted.next_call = call
            return False
        self._watch(call)
        return True

    def answering(self, call: Call) -> bool:
        return True

    def _watch(self, call: Call) -> None:
        if not _is_exempt(call):
            call.on_outcome(partial(self._outcome, call, _Handling()))

    def _outcome(self, call: Call, handling: _Handling, outcome: Any) -> Any:
        """Count the request, mute the connection if a quota is exceeded, and put the throttle time into the response."""
        if isinstance(outcome, BaseException):
            return outcome
        throttle_ms = max(_charged(call, outcome, handling.took_ns), _throttle_of(outcome))
        if throttle_ms <= 0:
            return outcome
        self._mute(call, throttle_ms)
        if outcome is NO_RESPONSE or not hasattr(outcome, "throttle_time_ms"):
            return outcome
        throttled = copy(outcome)  # a handler may return one response object for several requests
        throttled.throttle_time_ms = throttle_ms
        return throttled

    def _mute(self, call: Call, throttle_ms: int) -> None:
        if call.connection not in self._muted:
            self._muted[call.connection] = _Muted()
            over = partial(self._unmute, call.connection)
            call.context.node.clock.call_later_ms(throttle_ms, over, Domain.REQUESTS)

    def _unmute(self, connection: ClientConnection) -> None:
        waiting = self._muted.pop(connection).next_call
        if waiting is not None and waiting.context.node.life.alive:
            self._watch(waiting)
            waiting.proceed()


def _is_exempt(call: Call) -> bool:
    """Whether the request comes from another broker, for which quotas do not apply."""
    api_key = call.context.api_key
    if api_key != FETCH:
        return api_key == WRITE_TXN_MARKERS
    # Version 15 moved the replica's id into a tagged field (KIP-903).
    return bool(max(call.request.replica_id, call.request.replica_state.replica_id) >= 0)


def _throttle_of(outcome: Any) -> int:
    """Throttle time that the handler has set: by a controller mutation or fetch quota, or by a fault rule."""
    return int(getattr(outcome, "throttle_time_ms", 0) or 0)


def _charged(call: Call, outcome: Any, took_ns: int) -> int:
    context = call.context
    quotas = context.node.quotas
    who = context.principal.partition(":")[2], context.client_id or ""
    throttle_ms = min(
        quotas.charge(REQUEST_PERCENTAGE, *who, took_ns / NS_PER_PERCENT), quotas.request_throttle_ms_max
    )
    if context.api_key == PRODUCE:
        throttle_ms = max(throttle_ms, quotas.charge(PRODUCER_BYTE_RATE, *who, len(call.frame)))
    return throttle_ms


class ThrottlingSwitch(MetadataListener):
    """Installs the `Throttling` interceptor while quotas are set."""

    def __init__(self, calls: CallInterceptors, image: Image) -> None:
        self._calls = calls
        self._image = image
        self._throttling: Throttling | None = None
        self.on_quotas_changed()

    def on_quotas_changed(self) -> None:
        if self._image.quotas and self._throttling is None:
            self._throttling = Throttling()
            self._calls.add(self._throttling)
        elif not self._image.quotas and self._throttling is not None:
            self._calls.remove(self._throttling)
            self._throttling = None
