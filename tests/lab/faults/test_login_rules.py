"""Fault rules on authentication: connections that authenticate by SASL, with the real mechanisms."""

from __future__ import annotations

from typing import Any

import pytest

from broker.apis.sasl_authenticate import sasl_authenticate
from broker.apis.sasl_handshake import sasl_handshake
from broker.net.listener_security import ListenerSecurity
from broker.requests.api import Handler
from broker.security.sasl.authenticator import Mechanism
from broker.security.sasl.clients import ScramClient
from broker.security.sasl.failures import invalid_credentials
from broker.security.sasl.scram import ScramServer, credential
from protocol.codec import client_codec
from protocol.errors import NONE, ErrorCode
from protocol.frame import response_body_offset
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.net.test_connection import HEARTBEAT, LISTENER, NODE, VERSIONS, heartbeat, request, turns
from tests.lab.faults.stage import Stage

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
MECHANISM = "SCRAM-SHA-512"
FAILED = ErrorCode.sasl_authentication_failed
DELAY_MS = 100
KEYS = credential("secret", MECHANISM)


@pytest.fixture(autouse=True)
def node_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NODE, "node_id", 1, raising=False)
    monkeypatch.setattr(NODE, "topic_name", lambda topic_id: None, raising=False)
    monkeypatch.setitem(VERSIONS, SASL_HANDSHAKE, range(2))
    monkeypatch.setitem(VERSIONS, SASL_AUTHENTICATE, range(3))


class Login:
    """A client that authenticates step by step to a broker with fault rules."""

    def __init__(self, *rules: str) -> None:
        self.principals: list[str] = []
        self.principals_of_handshakes: list[str] = []
        handlers: dict[int, Handler] = {
            SASL_HANDSHAKE: self._handshake,
            SASL_AUTHENTICATE: sasl_authenticate,
            HEARTBEAT: self._heartbeat,
        }
        self.stage = Stage(handlers)
        self.rules = [self.stage.add(each) for each in rules]
        self.stage.broker.connections.security = {
            LISTENER.name: ListenerSecurity(
                self.stage.clock,
                mechanisms={MECHANISM: Mechanism(MECHANISM, self._server)},
                failure_delay_ms=DELAY_MS,
            )
        }
        self.peer = self.stage.connect()
        self.client = ScramClient(MECHANISM, "alice", "secret")
        self.tokens: list[bytes] = []
        """The tokens that reached the mechanism."""

    def _server(self) -> ScramServer:
        server = ScramServer(MECHANISM, lambda user: KEYS, _no_token)
        evaluate = server.evaluate

        async def noted(token: bytes) -> bytes:
            self.tokens.append(token)
            return await evaluate(token)

        server.evaluate = noted
        return server

    def _heartbeat(self, message: HeartbeatRequest, context: Any) -> HeartbeatResponse:
        self.principals.append(context.principal)
        return HeartbeatResponse()

    async def _handshake(self, message: SaslHandshakeRequest, context: Any) -> SaslHandshakeResponse:
        self.principals_of_handshakes.append(context.principal)
        return await sasl_handshake(message, context)

    async def handshake(self) -> Any:
        return await self._ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=MECHANISM))

    async def authenticate(self, token: bytes | None) -> Any:
        assert token is not None
        return await self._ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))

    async def _ask(self, key: int, version: int, message: object) -> Any:
        """Send a request. Returns the response, None if it has not come after a few turns of the event loop."""
        self.key, self.version = key, version
        self.peer.transport.written.clear()
        self.peer.send(request(key, version, message))
        await turns()
        return self.answer()

    def answer(self) -> Any:
        for frame in self.peer.frames():
            start = response_body_offset(self.key, self.version, frame)
            return client_codec(self.key, self.version).decode(frame, start)
        return None

    async def pass_time(self, ms: int) -> None:
        await turns()
        self.stage.clock.advance(ms)
        await turns()

    async def go_on(self) -> None:
        """Authenticate, from the first token to the last."""
        first = await self.authenticate(self.client.first())
        assert first is not None
        last = await self.authenticate(self.client.evaluate(bytes(first.auth_bytes)))
        assert last is not None
        assert self.client.evaluate(bytes(last.auth_bytes)) is None

    @property
    def is_closed(self) -> bool:
        return self.peer.transport.closing


async def _no_token(token_id: str) -> None:
    return None


async def test_a_login_without_a_hit_is_as_without_rules() -> None:
    login = Login("SaslAuthenticate mechanism=PLAIN -> drop", "Sasl* principal=User:* nth=9 -> drop")
    assert await login.handshake() is not None
    await login.go_on()
    login.peer.send(heartbeat(1))
    assert login.principals == ["User:alice"]
    # The second rule has matched all three requests, with a client that has no principal.
    assert [each.matches for each in login.rules] == [0, 3]


async def test_a_request_of_a_kind_that_came_before_the_login_has_the_principal_too() -> None:
    login = Login()
    await login.handshake()
    await login.go_on()
    await login.handshake()
    assert login.principals_of_handshakes == ["User:ANONYMOUS", "User:alice"]


async def test_a_mechanism_is_matched_in_both_requests() -> None:
    login = Login(f"Sasl* mechanism={MECHANISM} nth=9 -> drop", "Sasl* mechanism=SCRAM-SHA-2* nth=9 -> drop")
    await login.handshake()
    await login.authenticate(login.client.first())
    assert [each.matches for each in login.rules] == [2, 0]


async def test_a_principal_is_that_of_the_login() -> None:
    login = Login("Heartbeat principal=User:al* nth=2 -> drop", "Heartbeat principal=User:bob nth=9 -> drop")
    await login.handshake()
    await login.go_on()
    login.peer.send(heartbeat(1) + heartbeat(2))
    assert login.is_closed
    assert login.principals == ["User:alice"]
    assert [each.matches for each in login.rules] == [2, 0]


async def test_a_refused_login_is_kafka_s_refusal() -> None:
    login = Login("SaslAuthenticate nth=2 -> error SASL_AUTHENTICATION_FAILED")
    await login.handshake()
    first = await login.authenticate(login.client.first())
    assert first is not None
    assert await login.authenticate(login.client.evaluate(bytes(first.auth_bytes))) is None
    await login.pass_time(DELAY_MS - 1)
    assert login.answer() is None
    assert not login.is_closed
    await login.pass_time(1)
    assert login.answer() == SaslAuthenticateResponse(
        error_code=FAILED,
        error_message=invalid_credentials(MECHANISM),
    )
    assert login.is_closed
    assert len(login.tokens) == 1


async def test_what_comes_behind_a_refused_token_is_not_looked_at() -> None:
    login = Login("SaslAuthenticate nth=1 -> error SASL_AUTHENTICATION_FAILED")
    await login.handshake()
    token = request(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=login.client.first()))
    login.peer.transport.written.clear()
    login.peer.send(token + token)
    await login.pass_time(DELAY_MS)
    assert len(login.peer.answered()) == 1
    assert login.is_closed
    assert login.tokens == []


async def test_an_error_in_the_handshake_ends_the_login_too() -> None:
    login = Login("SaslHandshake nth=1 -> error UNSUPPORTED_SASL_MECHANISM")
    assert await login.handshake() is None
    await login.pass_time(DELAY_MS)
    assert login.answer() == SaslHandshakeResponse(
        error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=(MECHANISM,)
    )
    assert login.is_closed


async def test_an_error_after_the_login_leaves_the_connection_open() -> None:
    login = Login("SaslHandshake nth=2 -> error ILLEGAL_SASL_STATE")
    await login.handshake()
    await login.go_on()
    again = await login.handshake()
    assert again is not None
    assert again.error_code == ErrorCode.illegal_sasl_state
    assert not login.is_closed


async def test_a_refusal_ends_with_its_connection() -> None:
    login = Login("SaslAuthenticate nth=1 -> error SASL_AUTHENTICATION_FAILED")
    await login.handshake()
    await login.authenticate(login.client.first())
    login.peer.lose()
    await turns()
    assert login.stage.clock.timers == []


async def test_a_delayed_token_is_answered_later_and_nothing_behind_it_before() -> None:
    login = Login(f"SaslAuthenticate mechanism={MECHANISM} nth=2 -> delay 2s")
    await login.handshake()
    first = await login.authenticate(login.client.first())
    assert first is not None
    assert await login.authenticate(login.client.evaluate(bytes(first.auth_bytes))) is None
    login.peer.send(heartbeat(1))
    await login.pass_time(1999)
    assert (login.answer(), login.principals, len(login.tokens)) == (None, [], 1)
    await login.pass_time(1)
    assert login.answer().error_code == NONE
    assert login.principals == ["User:alice"]


async def test_a_lost_answer_leaves_the_client_logged_in_without_its_knowledge() -> None:
    login = Login("SaslAuthenticate nth=2 -> lose-answer silent")
    await login.handshake()
    first = await login.authenticate(login.client.first())
    assert first is not None
    assert await login.authenticate(login.client.evaluate(bytes(first.auth_bytes))) is None
    assert not login.is_closed
    login.peer.send(heartbeat(1))
    assert login.principals == ["User:alice"]


@pytest.mark.parametrize("action", ["lose-request", "lose-answer", "drop"])
async def test_a_login_that_loses_its_connection(action: str) -> None:
    login = Login(f"SaslAuthenticate nth=1 -> {action}")
    await login.handshake()
    assert await login.authenticate(login.client.first()) is None
    assert login.is_closed
    assert len(login.tokens) == (action == "lose-answer")


async def test_a_lost_token_leaves_the_login_where_it_was() -> None:
    login = Login("SaslAuthenticate nth=1 -> lose-request silent")
    await login.handshake()
    await login.authenticate(login.client.first())
    assert not login.is_closed
    login.peer.send(heartbeat(1))
    await login.pass_time(DELAY_MS)
    assert login.is_closed, "its authentication is not complete"
    assert login.principals == []


async def test_a_token_that_comes_twice_fails_the_login() -> None:
    login = Login("SaslAuthenticate nth=1 -> duplicate")
    await login.handshake()
    first = await login.authenticate(login.client.first())
    assert first is not None
    assert len(login.tokens) == 2
    assert await login.authenticate(login.client.evaluate(bytes(first.auth_bytes))) is None
    assert login.is_closed


async def test_a_detached_login_is_lost() -> None:
    login = Login("SaslAuthenticate nth=1 -> detach")
    await login.handshake()
    await login.authenticate(login.client.first())
    assert login.is_closed
    (rule,) = login.rules
    assert login.stage.faults.release(rule.id) == 1
    await turns()
    assert login.tokens == []
    assert [each.outcome for each in rule.released] == ["lost"]


@pytest.mark.parametrize(
    ("mechanism", "told"),
    [
        ("PLAIN", "Authentication failed: Invalid username or password"),
        ("OAUTHBEARER", '{"status":"invalid_token"}'),
    ],
)
async def test_the_message_is_that_of_the_mechanism(mechanism: str, told: str) -> None:
    login = Login("SaslAuthenticate -> error SASL_AUTHENTICATION_FAILED")
    await login.handshake()
    assert login.peer.connection.authentication is not None
    login.peer.connection.authentication.mechanism = mechanism
    await login.authenticate(b"\0")
    await login.pass_time(DELAY_MS)
    assert login.answer().error_message == told
