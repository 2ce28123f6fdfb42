"""Sends broken logins to a broker in virtual time: ``python -m tests.fuzz.logins --seed 1 --clients 2000``.

Each client begins a SASL login and stops at a random step: before the handshake, after it, in the middle of SCRAM, or before
a reauthentication. Then it sends something damaged: random bytes, requests out of order, wrong sizes, tokens with a wrong
byte, tokens of the maximum size.

The client must get a response, or its connection must be closed, at the latest after connections.max.idle.ms. It must not
be authenticated. Another connection must get its response at once. The broker must log no error, no secret, and no more
kinds of lines than its rate limit distinguishes.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import structlog

from broker.clock.virtual import VirtualClock
from broker.cluster import Cluster
from broker.requests.api import discover
from broker.security.principals import ANONYMOUS
from broker.security.sasl.clients import ScramClient
from server.options import parse
from tests.fuzz import tokens
from tests.fuzz.frames import Client, raw_name
from tests.fuzz.playing import Failure, play, play_seeds
from tests.fuzz.requests import Requests, World, damaged
from tests.simulation.loop import START_MS, SimClock, SimLoop
from tests.support import raw

PORTS: Final = {"PLAINTEXT": 9092, "SASL": 9093, "SIGNED": 9094}
"""Ports by listener. SIGNED accepts only OAUTHBEARER, with signed tokens; SASL all mechanisms, with unsecured tokens."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
REAUTH_MS: Final = 60_000
IDLE_S: Final = 600.0
ANSWER_S: Final = 30.0
"""Virtual seconds to wait for a response. No login takes longer, not even a failed one."""
NEIGHBOUR_S: Final = 1.0
SAID_MAX: Final = 3
KINDS_MAX: Final = 30
WINDOW: Final = 12
"""Number of characters of a secret that must not appear in the log together."""


class Talk(NamedTuple):
    """The login of one client up to the point at which it goes wrong."""

    listener: str
    mechanism: str
    version: int
    """Version of SaslHandshake. After version 0 tokens are sent without SaslAuthenticate around them."""
    is_known: bool
    """Whether the client has logged in before, so that this is a reauthentication."""
    steps: int
    """Correct steps of the login before it goes wrong: 0 is before SaslHandshake, 1 after it, 2 between SCRAM's messages."""


class Logins:
    """A broker, random clients from one seed, and a second connection (the neighbour) with valid requests."""

    def __init__(self, seed: int, directory: Path, loop: SimLoop) -> None:
        self._seed = seed
        self._directory = directory
        self._loop = loop
        self._random = Random(f"{seed}/logins")
        self._errors: list[str] = []
        self._kinds: set[tuple[object, object]] = set()
        self._secrets: set[str] = set()
        self._silent: list[Client] = []
        self.answered = self.closed = self.known = 0

    # ---- the broker

    def log(self, _: Any, name: str, event: MutableMapping[str, Any]) -> Any:
        """A structlog processor that counts errors and secrets as failures."""
        text = json.dumps(event, default=repr)
        if name in ("error", "critical", "exception") or "exc_info" in event:
            self._errors.append(text)
        if secret := next((each for each in self._secrets if each in text), None):
            self._errors.append(f"a secret in the log: {secret!r} of {text}")
        if "connection" in event:
            self._kinds.add((event["event"], event.get("reason")))
        raise structlog.DropEvent

    async def run(self, clients: int) -> None:
        await self._start()
        neighbour = await self._connect("PLAINTEXT")
        await self._add_users(neighbour)
        topics = [topic.topic_id for topic in self._cluster.metadata.topics.values()]
        apis = {raw_name(key): api.versions for key, api in discover().items()}
        self._requests = Requests(self._random, World(["orders"], topics), apis)
        for number in range(1, clients + 1):
            talk = self._draw()
            said: list[bytes] = []
            try:
                await self._talk(talk, said)
                await self._check(neighbour, number)
            except Failure as failure:
                heard = ", ".join(each[:2000].hex() for each in said)
                raise Failure(f"seed {self._seed}, client {number}, {talk}: {failure}: {heard}") from failure
        await self._check_idle(neighbour)
        await self._cluster.stop()

    async def _start(self) -> None:
        keys = self._directory.parent / "keys.json"
        keys.write_text(tokens.JWKS)
        settings = settings_of(keys)
        words = [f"--set={name}={value}" for name, value in settings.items()]
        self._cluster = Cluster(
            parse(["--data-dir", str(self._directory), "--topic", "orders:1", *words], {}),
            clock=VirtualClock(SimClock(self._loop)),
            random=Random(f"{self._seed}/broker"),
            bind=self._loop.network.bind,
        )
        await self._cluster.start()

    async def _connect(self, listener: str) -> Client:
        _, client = await self._loop.network.connect("fuzz", PORTS[listener], Client)
        return client

    async def _add_users(self, neighbour: Client) -> None:
        for number, salted in tokens.salted_passwords():
            of_user = {"name": tokens.USER, "mechanism": number, "iterations": 4096, "salt": b"salt"}
            body = {"deletions": [], "upsertions": [{**of_user, "salted_password": salted}]}
            answer = await _ask(neighbour, "alter_user_scram_credentials", 0, body)
            assert {each["error_code"] for each in answer["results"]} == {0}, answer

    # ---- one client

    def _draw(self) -> Talk:
        random = self._random
        listener = random.choice(("SASL", "SASL", "SIGNED"))
        mechanism = random.choice(MECHANISMS) if listener == "SASL" else "OAUTHBEARER"
        steps = random.choice((0, 1, 1, 2) if mechanism.startswith("SCRAM") else (0, 1, 1))
        return Talk(listener, mechanism, random.choice((0, 1, 1)), random.random() < 0.2, steps)

    async def _talk(self, talk: Talk, said: list[bytes]) -> None:
        client = await self._connect(talk.listener)
        if talk.is_known:
            await self._log_in(client, talk)
            await asyncio.sleep(2 * REAUTH_MS / 1000)
        login = Login(talk)
        for _ in range(talk.steps):
            await login.step(client)
        accepts = self._accepting(talk, login)
        for _ in range(self._random.randint(1, SAID_MAX)):
            token = login.token()
            self._secrets |= set(tokens.windows(login.secret, WINDOW))
            connection = self._connection(client)
            is_known = connection is not None and connection.authentication.is_complete
            data, is_whole = self._damage(talk, token, is_known)
            said.append(data)
            client.transport.write(data)
            if not await self._hears(client, is_whole):
                break
            self._check_principal(client, talk, any(map(accepts, said)))
            if not is_whole:
                break  # further bytes would belong to the same frame
        if client.is_open and self._random.random() < 0.5:
            client.transport.abort()
        elif client.is_open:
            self._silent.append(client)

    async def _log_in(self, client: Client, talk: Talk) -> None:
        login = Login(talk._replace(version=1))
        while not login.is_complete:
            await login.step(client)
        self.known += 1

    async def _hears(self, client: Client, is_whole: bool) -> bool:
        """Wait for a response. Returns False if the connection was closed, and True also if no response is required yet."""
        try:
            answer = await client.receive(ANSWER_S if is_whole else NEIGHBOUR_S)
        except TimeoutError:
            if is_whole:
                raise Failure("neither a response nor a closed connection") from None
            return True
        if answer is None:
            self.closed += 1
            return False
        self.answered += 1
        return True

    def _accepting(self, talk: Talk, login: Login) -> Callable[[bytes], bool]:
        """Return a predicate: whether bytes that the client has sent may have authenticated it."""
        if talk.mechanism == "OAUTHBEARER" and talk.listener == "SASL":
            return lambda data: True
        return lambda data: any(each in data for each in login.proofs)

    def _check_principal(self, client: Client, talk: Talk, may_be_known: bool) -> None:
        connection = self._connection(client)
        if connection is None or talk.is_known or may_be_known:
            return
        if connection.client.principal != ANONYMOUS or connection.authentication.is_complete:
            raise Failure(f"authenticated as {connection.client.principal} without a proof")

    def _connection(self, client: Client) -> Any:
        """The broker's end of the connection, None if it is closed."""
        port = client.transport.peer.get_extra_info("peername")[1]
        return next((each for each in self._connections() if each.port == port), None)

    def _connections(self) -> list[Any]:
        return list(self._cluster.first.connections._open)

    # ---- damaged input

    def _damage(self, talk: Talk, token: bytes, is_known: bool) -> tuple[bytes, bool]:
        """Return damaged bytes to send, and whether they are a whole frame.

        The broker must respond to a whole frame, or close the connection.
        """
        random = self._random
        kind = random.choice(("bytes", "request", "size", "part", "token", "token", "token", "huge"))
        if kind == "size":
            size = random.choice((-1, -(1 << 31), 524_289, 1 << 20, (1 << 31) - 1))
            said = struct.pack(">i", size) + random.randbytes(random.choice((0, 3, 100)))
            return said, size < 0 or not is_known
        if kind == "bytes":
            return _framed(random.randbytes(random.choice((0, 1, 7, 8, 14, 100, 5000)))), True
        if kind == "request":
            frame = self._requests.frame(7, 0.3)
            return _framed(frame.data), not is_known
        if kind == "huge":
            token = random.choice(tokens.HUGE)(token)
        elif random.random() < 0.8:
            token = damaged(token, random)
        said = _framed(token if talk.version == 0 and talk.steps else self._request(token))
        if kind == "part":
            return said[: random.randrange(len(said))], False
        return said, True

    def _request(self, token: bytes) -> bytes:
        data = raw.encode_request("sasl_authenticate", self._random.randrange(3), {"auth_bytes": token}, 7)
        return damaged(data, self._random) if self._random.random() < 0.1 else data

    # ---- checks

    async def _check(self, neighbour: Client, number: int) -> None:
        await _served(neighbour, number)
        if self._errors:
            raise Failure(self._errors[0])
        if len(self._kinds) > KINDS_MAX:
            raise Failure(f"{len(self._kinds)} kinds of log lines, more than KINDS_MAX: {self._kinds}")

    async def _check_idle(self, neighbour: Client) -> None:
        """Check that idle connections are closed after connections.max.idle.ms."""
        for number in range(12):
            await asyncio.sleep(IDLE_S / 10)
            await self._check(neighbour, number)
        left = [each for each in self._connections() if each.port != PORTS["PLAINTEXT"]]
        if len(left) > 1 or any(each.is_open for each in self._silent):
            raise Failure(f"{len(left) - 1} idle connections are still open")


class Login:
    """The messages of a correct login, one after the other."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._scram = (
            ScramClient(talk.mechanism, tokens.USER, tokens.PASSWORD) if "SCRAM" in talk.mechanism else None
        )
        self._challenge: bytes | None = None
        self._began = False
        self._due: bytes | None = None
        self.is_complete = False
        self.secret = tokens.PASSWORD
        """The secret that must not be in the log, not even in part."""
        self.proofs: list[bytes] = []
        """Byte strings, one of which a client must send to be authenticated, unless tokens are unsecured."""

    def token(self) -> bytes:
        """The token that the client sends next, of a correct login."""
        if self._due is None:
            self._due = self._make()
        return self._due

    def _make(self) -> bytes:
        talk = self._talk
        if talk.mechanism == "PLAIN":
            said = f"\0{tokens.USER}\0{tokens.PASSWORD}".encode()
            self.proofs = [said]
        elif self._scram is None:
            signed = talk.listener == "SIGNED"
            jwt = tokens.signed(START_MS // 1000) if signed else tokens.unsecured(START_MS // 1000)
            self.secret, self.proofs = jwt.split(".", 1)[1], [jwt.split(".")[2].encode()] if signed else []
            said = f"n,,\x01auth=Bearer {jwt}\x01\x01".encode()
        elif self._challenge is None:
            said = self._scram.first()
        else:
            said = self._scram.evaluate(self._challenge) or b""
            self.secret = said.partition(b",p=")[2].decode()
            self.proofs = [self.secret.encode()]
        return said

    async def step(self, client: Client) -> None:
        """Send the handshake, or the next message of the mechanism."""
        talk = self._talk
        if not self._began:
            self._began = True
            answer = await _ask(client, "sasl_handshake", talk.version, {"mechanism": talk.mechanism})
            if answer["error_code"]:
                raise Failure(f"a valid SaslHandshake fails: {answer}")
            return
        token = self.token()
        if talk.version:
            answer = await _ask(client, "sasl_authenticate", 2, {"auth_bytes": token})
            if answer["error_code"]:
                raise Failure(f"SaslAuthenticate with a valid token fails: {answer}")
            challenge = bytes(answer["auth_bytes"])
        else:
            client.transport.write(_framed(token))
            challenge = await client.receive(ANSWER_S) or b""
        self._due = None
        self.is_complete = self._scram is None or self._challenge is not None
        self._challenge = challenge


async def _ask(client: Client, api: str, version: int, body: dict[str, Any]) -> Any:
    client.send(raw.encode_request(api, version, body, 7))
    answer = await client.receive(ANSWER_S)
    if answer is None:
        raise Failure(f"the broker closed the connection after a valid {api} request")
    return raw.decode_response(api, version, answer)[1]


async def _served(neighbour: Client, number: int) -> None:
    neighbour.send(raw.encode_request("api_versions", 0, {}, number))
    try:
        answer = await neighbour.receive(NEIGHBOUR_S)
    except TimeoutError:
        raise Failure("the neighbour, a connection with valid requests only, gets no response") from None
    if answer is None or raw.decode_response("api_versions", 0, answer)[0] != number:
        raise Failure(
            "the neighbour, a connection with valid requests only, was closed or got a wrong response"
        )


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def settings_of(keys: Path) -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    oauth = f"{package}.oauthbearer.OAuthBearerLoginModule required;"
    plain = f'{package}.plain.PlainLoginModule required user_{tokens.USER}="{tokens.PASSWORD}";'
    own: dict[str, str] = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in PORTS.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SIGNED:SASL_PLAINTEXT",
        "connections.max.idle.ms": str(int(IDLE_S * 1000)),
        "connections.max.reauth.ms": str(REAUTH_MS),
        "listener.name.sasl.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl.plain.sasl.jaas.config": plain,
        "listener.name.sasl.oauthbearer.sasl.jaas.config": oauth,
        "listener.name.signed.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.signed.oauthbearer.sasl.jaas.config": oauth,
        "listener.name.signed.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.signed.sasl.oauthbearer.allow.unverified.audience": "true",
        "listener.name.signed.sasl.oauthbearer.allow.unverified.issuer": "true",
        "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": (
            f"{package}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
    }
    for mechanism in MECHANISMS[1:3]:
        name = f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config"
        own[name] = f"{package}.scram.ScramLoginModule required;"
    return own


def fuzz(seed: int, clients: int) -> Logins:
    """Run one seed. Raises ``Failure`` if a client is not handled correctly."""
    return play(Logins, seed, clients)


def main(arguments: list[str]) -> int:
    return play_seeds(
        arguments,
        __doc__,
        "clients",
        1000,
        fuzz,
        lambda work: f"{work.answered} answered, {work.closed} closed, {work.known} known",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
