"""Interceptors of requests: which requests each interceptor sees, in which order, and which events a watcher gets."""

from __future__ import annotations

from broker.net.calls import Call, CallEvent, CallInterceptor, CallInterceptors
from broker.requests.api import NO_RESPONSE, CloseConnection, Handler
from protocol.messages.heartbeat import HeartbeatResponse
from tests.broker.net.test_connection import (
    HEARTBEAT,
    PRODUCE,
    Broker,
    Parking,
    Peer,
    heartbeat,
    pong,
    produce,
    turns,
)


class Watcher:
    """An interceptor that lets every request pass, and records the events of each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def wants(self, api_key: int) -> bool:
        return True

    def arrived(self, call: Call) -> bool:
        call.watch(self.note)
        self.note(call, "arrived")
        return True

    def answering(self, call: Call) -> bool:
        return True

    def note(self, call: Call, event: CallEvent | str) -> None:
        self.seen.append((call.header.correlation_id, event.name if isinstance(event, CallEvent) else event))


class Rule:
    """An interceptor that stops requests before their handler or before their response."""

    def __init__(self, *, handles: bool = True, answers: bool = True, api_key: int | None = None) -> None:
        self.handles, self.answers, self.api_key = handles, answers, api_key
        self.held: list[Call] = []

    def wants(self, api_key: int) -> bool:
        return self.api_key in (None, api_key)

    def arrived(self, call: Call) -> bool:
        if not self.handles:
            self.held.append(call)
        return self.handles

    def answering(self, call: Call) -> bool:
        return self.answers


def intercepted(handlers: dict[int, Handler], *interceptors: Watcher | Rule) -> Peer:
    """A connection to a broker with these handlers and interceptors."""
    broker = Broker(handlers)
    for each in interceptors:
        broker.connections.calls.add(each)
    return broker.connect()


def test_connections_ask_the_interceptors_that_are_left() -> None:
    calls = CallInterceptors()
    one: CallInterceptor = Watcher()
    other: CallInterceptor = Rule()
    calls.add(one)
    assert calls.chain is one
    calls.add(other)
    calls.remove(one)
    assert calls.chain is other
    calls.remove(other)
    assert calls.chain is None


async def test_the_first_sees_what_a_later_one_stops() -> None:
    rule, watcher, behind = Rule(handles=False), Watcher(), Watcher()
    peer = intercepted({HEARTBEAT: pong}, rule, behind)
    peer.connection._shared.calls.add(watcher, first=True)
    peer.send(heartbeat(1))
    assert watcher.seen == [(1, "arrived"), (1, "HELD")]
    assert behind.seen == []
    rule.held.pop().proceed()
    assert watcher.seen[2:] == [(1, "ANSWERED")]
    await turns()
    assert peer.answered() == [1]


async def test_a_watcher_gets_an_event_for_a_dropped_response() -> None:
    watcher = Watcher()
    peer = intercepted({HEARTBEAT: pong}, watcher, Rule(answers=False))
    peer.send(heartbeat(1))
    assert watcher.seen == [(1, "arrived"), (1, "KEPT_BACK")]
    assert peer.answered() == []


async def test_a_mute_connection_drops_every_response() -> None:
    watcher = Watcher()
    peer = intercepted({HEARTBEAT: pong}, watcher)
    peer.connection.mute()
    peer.send(heartbeat(1))
    assert watcher.seen == [(1, "arrived"), (1, "KEPT_BACK")]


async def test_a_watcher_gets_an_event_for_a_request_without_a_response() -> None:
    watcher = Watcher()
    peer = intercepted({PRODUCE: lambda message, context: NO_RESPONSE}, watcher)
    peer.send(produce(1, b""))
    assert watcher.seen == [(1, "arrived"), (1, "UNANSWERED")]


async def test_a_watcher_gets_an_event_for_a_client_that_left() -> None:
    watcher, parking = Watcher(), Parking()
    peer = intercepted({HEARTBEAT: parking}, watcher)
    peer.send(heartbeat(1))
    peer.lose()
    await turns()
    assert watcher.seen == [(1, "arrived"), (1, "DELAYED"), (1, "GONE")]


async def test_a_watcher_gets_an_event_for_a_closed_connection() -> None:
    def refuse(message: object, context: object) -> object:
        raise CloseConnection("refused by the test")

    watcher = Watcher()
    peer = intercepted({HEARTBEAT: refuse}, watcher)
    peer.send(heartbeat(1))
    assert watcher.seen == [(1, "arrived"), (1, "GONE")]


async def test_a_watcher_gets_an_event_for_a_request_that_is_handled_again() -> None:
    rule, watcher = Rule(handles=False), Watcher()
    peer = intercepted({HEARTBEAT: pong}, watcher, rule)
    peer.send(heartbeat(1))
    rule.held.pop().handle_without_response()
    assert watcher.seen == [(1, "arrived"), (1, "HELD"), (1, "HANDLED_ALONE")]
    assert peer.answered() == []


async def test_each_sees_the_apis_that_it_wants() -> None:
    rule, watcher = Rule(handles=False, api_key=HEARTBEAT), Watcher()
    peer = intercepted({HEARTBEAT: pong, PRODUCE: lambda message, context: NO_RESPONSE}, rule, watcher)
    peer.send(produce(1, b"") + heartbeat(2))
    assert watcher.seen == [(1, "arrived"), (1, "UNANSWERED")]
    assert [call.header.correlation_id for call in rule.held] == [2]


async def test_of_an_api_that_no_interceptor_wants_no_call_is_made() -> None:
    rule = Rule(api_key=PRODUCE)
    peer = intercepted({HEARTBEAT: pong}, rule)
    rule.arrived = None  # type: ignore[assignment]
    peer.send(heartbeat(1))
    assert peer.answered() == [1]


async def test_a_removed_interceptor_still_sees_the_response_of_its_call() -> None:
    rule, parking = Rule(answers=False), Parking()
    peer = intercepted({HEARTBEAT: parking}, rule)
    peer.send(heartbeat(1))
    peer.connection._shared.calls.remove(rule)
    await parking.release()
    assert peer.answered() == []


async def test_a_call_may_be_answered_or_handled_while_it_arrives() -> None:
    class Answers(Rule):
        def arrived(self, call: Call) -> bool:
            if call.header.correlation_id == 1:
                call.connection.answer_held(call, HeartbeatResponse(error_code=27))
            else:
                call.proceed()
            return False

    watcher = Watcher()
    peer = intercepted({HEARTBEAT: pong}, watcher, Answers())
    peer.send(heartbeat(1) + heartbeat(2) + heartbeat(3))
    assert [answer.error_code for answer in peer.answers(HEARTBEAT, 4)] == [27, 0, 0]
    assert [event for _, event in watcher.seen] == ["arrived", "ANSWERED"] * 3
