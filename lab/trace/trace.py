"""The trace: intercepts the requests of all nodes, records each, and passes it to subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Final

from broker.clock import Clock, monotonic_epoch_us
from broker.net.calls import Call, CallEvent, CallInterceptors
from lab.trace.decoding import answer_dict, request_dict
from lab.trace.exchange import Ends, Exchange, Names, Outcome, no_names
from lab.trace.filters import EVERYTHING, TraceFilter
from lab.trace.lines import answer_summary, request_summary
from lab.trace.producer_facts import transactions_in
from lab.trace.redaction import redacted
from lab.trace.ring import Ring, TraceLimits
from lab.trace.subscription import Subscription

OUTCOMES: Final = {
    CallEvent.ANSWERED: Outcome.ANSWERED,
    CallEvent.UNANSWERED: Outcome.UNANSWERED,
    CallEvent.KEPT_BACK: Outcome.ANSWER_LOST,
    CallEvent.GONE: Outcome.CONNECTION_GONE,
}


class Trace:
    """The trace of all nodes of a broker. While it is off, as at first, it intercepts no request and costs nothing.

    trace = Trace(calls, clock)
    trace.start()
    ...
    for exchange in trace.entries(TraceFilter(transactional_id="orders-tx")):
        print(text_line(exchange))
    """

    def __init__(
        self,
        calls: CallInterceptors,
        clock: Clock,
        limits: TraceLimits | None = None,
        *,
        names: Names = no_names,
        measure_us: Callable[[], int] = monotonic_epoch_us,
    ) -> None:
        """``names`` returns a topic's name by its id; ``measure_us`` is a stopwatch in microseconds."""
        self.limits = limits or TraceLimits()
        self.names = names
        self._calls = calls
        self._time = _Time(clock, measure_us)
        self._ring = Ring(self.limits)
        self._numbered = 0
        self._followers: list[Subscription] = []
        self.running = False

    # -- on and off ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Record every call from now on. Exchanges that were recorded before stay. A second call does nothing."""
        if not self.running:
            self.running = True
            self._calls.add(self, first=True)

    def stop(self) -> None:
        """Record no further calls. Calls in progress are still followed to their end."""
        if self.running:
            self.running = False
            self._calls.remove(self)

    def clear(self) -> None:
        """Remove all exchanges. Later exchanges continue their numbering."""
        self._ring.clear()
        self._time.begin_again()

    def status(self) -> dict[str, object]:
        """Whether the trace is on, what it contains, and its limits: the response of the control port."""
        first = self._ring.first
        return {
            "running": self.running,
            "entries": len(self._ring),
            "bytes": self._ring.bytes,
            "first": first.number if first else None,
            "last": self._numbered or None,
            "pushed_out": self._ring.pushed_out,
            "followers": len(self._followers),
            "limits": {
                "entries": self.limits.entries_max,
                "bytes": self.limits.bytes_max,
                "frame_bytes": self.limits.frame_bytes_max,
            },
        }

    # -- reading ------------------------------------------------------------------------------------------------

    def entries(
        self, wanted: TraceFilter = EVERYTHING, *, since: int = 0, limit: int | None = None
    ) -> list[Exchange]:
        """The newest ``limit`` exchanges that match and have a number above ``since``, in the order of arrival."""
        return _newest(tuple(self._ring), wanted, since, limit)

    def refused(self) -> list[Exchange]:
        """Exchanges whose responses have an error code or a throttle time, in the order of arrival."""
        return [each for each in self._ring if each.errors or each.throttle_ms]

    async def search(
        self, wanted: TraceFilter = EVERYTHING, *, since: int = 0, limit: int | None = None
    ) -> list[Exchange]:
        """``entries``, but searched in a thread, so that a full trace does not block the event loop."""
        return await asyncio.to_thread(_newest, tuple(self._ring), wanted, since, limit)

    def follow(self, wanted: TraceFilter = EVERYTHING, *, per_second: int | None = None) -> Subscription:
        """Subscribe to every exchange from now on that matches ``wanted``.

        An exchange is delivered when it ends, and also when a rule holds its request. ``per_second`` limits the
        rate of exchanges. This method does not start the trace. Close the subscription at the end (or use
        ``with``).
        """
        subscription = Subscription(
            wanted, self.limits, self._followers.remove, per_second, self._time.measure_us
        )
        self._followers.append(subscription)
        return subscription

    # -- called by connections (`broker.net.calls.CallInterceptor`) ----------------------------------------------

    def wants(self, api_key: int) -> bool:
        return True

    def arrived(self, call: Call) -> bool:
        self._numbered += 1
        context, connection, header = call.context, call.connection, call.header
        frame = redacted(header.api_key, header.api_version, call.frame, is_request=True)
        exchange = Exchange(
            number=self._numbered,
            node_id=call.node.node_id,
            connection_id=context.connection_id,
            ends=Ends(connection.host, connection.port, *connection.address),
            listener=context.listener.name,
            api_key=header.api_key,
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            principal=context.principal,
            transactions=transactions_in(header.api_key, call.request),
            arrived_ms=call.received_ms,
            arrived_us=self._time.now_us(call.received_ms),
            request=frame,
            request_bytes=len(frame),
        )
        if exchange.request_bytes > self.limits.frame_bytes_max:
            exchange.request_summary = request_summary(request_dict(exchange, self.names))
            exchange.request = self.limits.cut(frame)
        self._ring.add(exchange)
        call.watch(partial(self._happened, exchange, self._time.measure_us()))
        return True

    def answering(self, call: Call) -> bool:
        return True

    def _happened(self, exchange: Exchange, began_us: int, call: Call, event: CallEvent) -> None:
        exchange.rule = call.rule
        if event is CallEvent.DELAYED:
            return
        if event is CallEvent.HANDLED_ALONE:
            exchange.handled_alone += 1
            return
        if event is CallEvent.HELD:
            exchange.was_held = True
            # The rule that held it may have responded in the same call.
            if exchange.outcome is not Outcome.IN_PROGRESS:
                return
            exchange.outcome = Outcome.HELD
        else:
            exchange.outcome = OUTCOMES[event]
            exchange.answered_ms = self._time.now_ms()
            exchange.answered_us = self._time.now_us(exchange.answered_ms)
            exchange.took_us = self._time.measure_us() - began_us
            if call.answer is not None:
                self._keep_answer(exchange, call.answer)
                exchange.errors = tuple(dict.fromkeys(filter(None, call.error_codes())))
                exchange.throttle_ms = getattr(call.response, "throttle_time_ms", 0)
        self._tell(exchange)

    def _keep_answer(self, exchange: Exchange, answer: bytes) -> None:
        answer = redacted(exchange.api_key, exchange.api_version, answer, is_request=False)
        exchange.answer, exchange.answer_bytes = answer, len(answer)
        if exchange.answer_bytes > self.limits.frame_bytes_max:
            exchange.answer_summary = answer_summary(answer_dict(exchange, self.names) or {})
            exchange.answer = self.limits.cut(answer)
        self._ring.grow(exchange, len(exchange.answer))

    def _tell(self, exchange: Exchange) -> None:
        followers: Iterable[Subscription] = self._followers
        for follower in followers:
            follower.offer(exchange)


def _newest(
    exchanges: Sequence[Exchange], wanted: TraceFilter, since: int, limit: int | None
) -> list[Exchange]:
    newer = takewhile(lambda exchange: exchange.number > since, reversed(exchanges))
    found = list(islice(filter(wanted.matches, newer), limit))
    found.reverse()
    return found


class _Time:
    """The broker's clock in microseconds: its milliseconds, refined by a stopwatch."""

    __slots__ = ("_ahead_us", "_clock", "_last_us", "measure_us")

    def __init__(self, clock: Clock, measure_us: Callable[[], int]) -> None:
        self._clock = clock
        self.measure_us = measure_us
        self._ahead_us = 0
        self._last_us = 0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def begin_again(self) -> None:
        """Allow the time to go back once: a reset of the broker undoes the advances of its clock."""
        self._last_us = 0

    def now_us(self, now_ms: int) -> int:
        """The time in microseconds. Never goes back, and stays within 2 ms of the clock, even if the clock jumps.

        A jump of the clock is followed by whole milliseconds, so that the microseconds are those of the stopwatch, and with
        the default stopwatch those of the system's clock: certify compares them with the times of other services.
        """
        now_us = self.measure_us() + self._ahead_us
        if not -1000 <= now_us - now_ms * 1000 < 2000:
            behind_us = self._clock.now_ms() * 1000 - now_us
            self._ahead_us += -(-behind_us // 1000) * 1000
            now_us = self.measure_us() + self._ahead_us
        self._last_us = max(self._last_us, now_us)
        return self._last_us
