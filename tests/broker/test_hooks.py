"""What hangs on calls: who sees what, in which order, and what a watcher is told."""

from __future__ import annotations

from broker.api import NO_RESPONSE, CloseConnection, Handler
from broker.hooks import Call, CallEvent, Hooks
from protocol.messages.heartbeat import HeartbeatResponse
from tests.broker.test_connection import (
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
    """Lets everything pass and writes down what became of it."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def wants(self, api_key: int) -> bool:
        return True

    def arrived(self, call: Call) -> bool:
        call.watcher = self.note
        self.note(call, "arrived")
        return True

    def answering(self, call: Call) -> bool:
        return True

    def note(self, call: Call, event: CallEvent | str) -> None:
        self.seen.append((call.header.correlation_id, event.name if isinstance(event, CallEvent) else event))


class Rule:
    """Stops what it is told to stop."""

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


def hang(handlers: dict[int, Handler], *hooks: Watcher | Rule) -> Peer:
    """A connection to a broker with these handlers, and these who hang on its calls."""
    broker = Broker(handlers)
    broker.connections.hooks = Hooks()
    for hook in hooks:
        broker.connections.hooks.hang_calls(hook)
    return broker.connect()


def test_nobody_hangs_on_calls_once_all_have_left() -> None:
    hooks, one, other = Hooks(), Watcher(), Rule()
    hooks.hang_calls(one)
    assert hooks.calls is one
    hooks.hang_calls(other)
    hooks.unhang_calls(one)
    assert hooks.calls is other
    hooks.unhang_calls(other)
    assert hooks.calls is None


async def test_the_first_sees_what_a_later_one_stops() -> None:
    rule, watcher, behind = Rule(handles=False), Watcher(), Watcher()
    peer = hang({HEARTBEAT: pong}, rule, behind)
    peer.connection._shared.hooks.hang_calls(watcher, first=True)
    peer.send(heartbeat(1))
    assert watcher.seen == [(1, "arrived"), (1, "HELD")]
    assert behind.seen == []
    rule.held.pop().proceed()
    assert watcher.seen[2:] == [(1, "ANSWERED")]
    assert peer.answered() == [1]


async def test_a_watcher_hears_that_an_answer_was_kept_back() -> None:
    watcher = Watcher()
    peer = hang({HEARTBEAT: pong}, watcher, Rule(answers=False))
    peer.send(heartbeat(1))
    assert watcher.seen == [(1, "arrived"), (1, "KEPT_BACK")]
    assert peer.answered() == []


async def test_a_mute_connection_keeps_every_answer_back() -> None:
    watcher = Watcher()
    peer = hang({HEARTBEAT: pong}, watcher)
    peer.connection.mute()
    peer.send(heartbeat(1))
    assert watcher.seen == [(1, "arrived"), (1, "KEPT_BACK")]


async def test_a_watcher_hears_that_a_client_wanted_no_answer() -> None:
    watcher = Watcher()
    peer = hang({PRODUCE: lambda message, context: NO_RESPONSE}, watcher)
    peer.send(produce(1, b""))
    assert watcher.seen == [(1, "arrived"), (1, "UNANSWERED")]


async def test_a_watcher_hears_that_the_client_left_before_its_answer() -> None:
    watcher, parking = Watcher(), Parking()
    peer = hang({HEARTBEAT: parking}, watcher)
    peer.send(heartbeat(1))
    peer.lose()
    await turns()
    assert watcher.seen == [(1, "arrived"), (1, "GONE")]


async def test_a_watcher_hears_that_the_broker_hung_up_instead_of_answering() -> None:
    def refuse(message: object, context: object) -> object:
        raise CloseConnection("not like this")

    watcher = Watcher()
    peer = hang({HEARTBEAT: refuse}, watcher)
    peer.send(heartbeat(1))
    assert watcher.seen == [(1, "arrived"), (1, "GONE")]


async def test_a_watcher_hears_of_a_request_that_is_handled_once_more() -> None:
    rule, watcher = Rule(handles=False), Watcher()
    peer = hang({HEARTBEAT: pong}, watcher, rule)
    peer.send(heartbeat(1))
    rule.held.pop().run_alone()
    assert watcher.seen == [(1, "arrived"), (1, "HELD"), (1, "HANDLED_ALONE")]
    assert peer.answered() == []


async def test_each_sees_the_apis_that_it_wants() -> None:
    rule, watcher = Rule(handles=False, api_key=HEARTBEAT), Watcher()
    peer = hang({HEARTBEAT: pong, PRODUCE: lambda message, context: NO_RESPONSE}, rule, watcher)
    peer.send(produce(1, b"") + heartbeat(2))
    assert watcher.seen == [(1, "arrived"), (1, "UNANSWERED")]
    assert [call.header.correlation_id for call in rule.held] == [2]


async def test_of_an_api_that_nobody_wants_no_call_is_made() -> None:
    rule = Rule(api_key=PRODUCE)
    peer = hang({HEARTBEAT: pong}, rule)
    rule.arrived = None  # type: ignore[method-assign, assignment]
    peer.send(heartbeat(1))
    assert peer.answered() == [1]


async def test_who_saw_a_call_arrive_hears_its_answer_also_when_he_has_gone() -> None:
    rule, parking = Rule(answers=False), Parking()
    peer = hang({HEARTBEAT: parking}, rule)
    peer.send(heartbeat(1))
    peer.connection._shared.hooks.unhang_calls(rule)
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
    peer = hang({HEARTBEAT: pong}, watcher, Answers())
    peer.send(heartbeat(1) + heartbeat(2) + heartbeat(3))
    assert [answer.error_code for answer in peer.answers(HEARTBEAT, 4)] == [27, 0, 0]
    assert [event for _, event in watcher.seen] == ["arrived", "ANSWERED"] * 3
