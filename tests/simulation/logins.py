"""Logins with SCRAM and PLAIN on a SASL listener, while credentials change, sessions expire and nodes die.

Invariants, in addition to the checks of the workload:

- No request gets a response on a connection without a login, with a failed or unfinished login, or with an expired session
  that was not reauthenticated (KIP-368).
- A login succeeds with the password that was acknowledged last, on every node, also after a restart. With any other password
  it fails. After a change without a response either password may be valid, as long as the request may still arrive.
- A reauthentication on the same connection must have the same user.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from broker.metadata.scram_credentials import ITERATIONS_MIN, client_key, stored_key
from broker.security.sasl import scram
from broker.security.sasl.clients import PlainClient, SaslClient, ScramClient
from broker.security.sasl.mechanism import AuthenticationFailed
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.simulation.ledger import Broken
from tests.simulation.rare import LOGIN_REFUSED, LOGS_IN_AGAIN, NOT_LOGGED_IN, SESSION_ENDED
from tests.simulation.reach import Reach
from tests.simulation.settings import History
from tests.simulation.wire import LATE_MARGIN_MS, METADATA, NONE, Gone, Link, Wire

SASL_HANDSHAKE, SASL_AUTHENTICATE, ALTER_CREDENTIALS = 17, 36, 51
SCRAM_SHA_256, SCRAM_TYPE = "SCRAM-SHA-256", 1
PORT: Final = 19_092
SESSION_MS: Final = 8_000
USERS: Final = ("alice", "bob")
CAROL: Final = "carol"
CAROLS_PASSWORD: Final = "carol-0"
PAUSE_S: Final = (1.0, 8.0)
CHANGE_S: Final = (3.0, 15.0)
JAAS: Final = "listener.name.sasl_plaintext.{}.sasl.jaas.config"
SECURITY: Final = "org.apache.kafka.common.security"
WORK_S: Final = (1.1, 4.0)
"""Seconds between two requests, and so between two logins: a broker accepts no second login within a second (KIP-368)."""
ACTS: Final = (
    ("work", 50),
    ("wrong password", 15),
    ("half-way", 15),
    ("not at all", 10),
    ("stay too long", 10),
)
MAY_FAIL: Final = frozenset({ErrorCode.request_timed_out, ErrorCode.unknown_server_error})
ABSENT: Final = frozenset({ErrorCode.resource_not_found})


class Login(NamedTuple):
    """A user name and password that a client presents."""

    user: str
    password: str

    def exchange(self, random: Random) -> SaslClient:
        if self.user == CAROL:
            return PlainClient(self.user, self.password)
        return ScramClient(SCRAM_SHA_256, *self, nonce=lambda: f"{random.getrandbits(128):032x}")


class _Numbers:
    """Replacement for the module ``secrets`` in the broker's SCRAM code: its numbers come from the seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token_hex(self, nbytes: int) -> str:
        return self._random.getrandbits(8 * nbytes).to_bytes(nbytes).hex()


@contextmanager
def known_nonces(seed: int) -> Iterator[None]:
    """Context manager in which the broker's nonces and salts come from the seed."""
    with patch.object(scram, "secrets", _Numbers(Random(f"{seed}/nonces"))):
        yield


class Logins(Reach):
    """The `Reach` (optional part of the workload) that logs in, for the run of one seed."""

    clients = ("registrar", "login-1", "login-2")
    listeners = (f"SASL_PLAINTEXT://127.0.0.1:{PORT}",)

    def __init__(self, random: Random, nodes: int) -> None:
        super().__init__(random, nodes)
        self._histories = {user: History() for user in USERS}
        """Passwords of SCRAM users; None if the user does not exist."""

    def arguments(self, topic_settings: str) -> list[str]:
        settings = {
            "sasl.enabled.mechanisms": f"PLAIN,{SCRAM_SHA_256}",
            JAAS.format("plain"): (
                f'{SECURITY}.plain.PlainLoginModule required user_{CAROL}="{CAROLS_PASSWORD}";'
            ),
            JAAS.format(SCRAM_SHA_256.lower()): f"{SECURITY}.scram.ScramLoginModule required;",
            "connections.max.reauth.ms": SESSION_MS,
        }
        return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._change(self.stage.wire("registrar"))
        for name in ("login-1", "login-2"):
            yield self._come_and_go(self.stage.wire(name))

    # ---- changes of credentials

    async def _change(self, wire: Wire) -> None:
        number = 0
        while not self.stage.stop.now:
            number += 1
            user = wire.random.choice(USERS)
            await self._set(wire, user, f"{user}-{number}" if wire.random.random() < 0.8 else None)
            await asyncio.sleep(wire.random.uniform(*CHANGE_S))
        for user, history in self._histories.items():
            while history.pending:
                await asyncio.sleep(LATE_MARGIN_MS / 1000)
                await self._set(wire, user, f"{user}-last")
            for node_id in self.stage.cluster.nodes:
                await self._check_login(wire, node_id, Login(user, history.value or "none"))
        wire.close()

    async def _set(self, wire: Wire, user: str, password: str | None) -> None:
        salt = wire.random.getrandbits(128).to_bytes(16)
        if password is None:
            request = AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=user, mechanism=SCRAM_TYPE)]
            )
        else:
            upsertion = ScramCredentialUpsertion(
                name=user,
                mechanism=SCRAM_TYPE,
                iterations=ITERATIONS_MIN,
                salt=salt,
                salted_password=_salted(password, salt, ITERATIONS_MIN),
            )
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        history, sent_ms = self._histories[user], wire.now_ms()
        pending = password, sent_ms + LATE_MARGIN_MS
        history.pending.append(pending)
        try:
            answer = await wire.ask_any(ALTER_CREDENTIALS, 0, request)
        except Gone:
            return
        error = ErrorCode(answer.results[0].error_code)
        wire.say(f"{user} gets {password}: {error.name}")
        if error is NONE or (password is None and error in ABSENT):
            history.acknowledged(password, sent_ms)
            history.pending = [each for each in history.pending if each is not pending]
        elif error not in MAY_FAIL:
            raise Broken(f"a change of the credential of {user} fails with {error.name}")

    async def _check_login(self, wire: Wire, node_id: int, login: Login) -> None:
        """Log in on one node, with retries until there is a response, and check the outcome."""
        while True:
            try:
                link = await wire.connect(self._port(node_id))
                await self._log_in(wire, link, login)
            except Gone:
                await wire.back_off()
                continue
            link.transport.abort()
            return

    # ---- logins

    async def _come_and_go(self, wire: Wire) -> None:
        names, weights = [name for name, _ in ACTS], [weight for _, weight in ACTS]
        while not self.stage.stop.now:
            (act,) = wire.random.choices(names, weights)
            try:
                link = await wire.connect(self._port(wire.random.choice(sorted(self.stage.cluster.nodes))))
                await self._act(wire, link, act)
                link.transport.abort()
            except Gone as error:
                wire.say(f"{act}: {error}")
            await asyncio.sleep(wire.random.uniform(*PAUSE_S))
        wire.close()

    def _port(self, node_id: int) -> int:
        """Port of the node's SASL listener. The ports of the nodes are consecutive."""
        first = min(self.stage.cluster.nodes)
        return PORT + node_id - first

    async def _act(self, wire: Wire, link: Link, act: str) -> None:
        login = self._known(wire.random)
        if act == "not at all":
            await self._check_not_served(wire, link, act)
        elif act == "half-way":
            await wire.exchange(link, SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=_mechanism(login)))
            if wire.random.random() < 0.5 and login.user != CAROL:
                first = SaslAuthenticateRequest(auth_bytes=login.exchange(wire.random).first())
                await wire.exchange(link, SASL_AUTHENTICATE, 2, first)
            await self._check_not_served(wire, link, act)
        elif act == "wrong password":
            if await self._log_in(wire, link, login._replace(password="wrong")):
                raise Broken(f"{login.user} has logged in with a wrong password")
            self.stage.reached(LOGIN_REFUSED)
            await self._check_not_served(wire, link, act)
        elif await self._log_in(wire, link, login):
            await self._work(wire, link, login, stays_too_long=act == "stay too long")

    def _known(self, random: Random) -> Login:
        user = random.choice((*USERS, CAROL))
        password = CAROLS_PASSWORD if user == CAROL else self._histories[user].value
        return Login(user, password or "none")

    async def _log_in(self, wire: Wire, link: Link, login: Login) -> bool:
        """Whether the broker accepted the login. Raises ``Gone`` if there was no response."""
        before = self._possible(login.user)
        handshake = SaslHandshakeRequest(mechanism=_mechanism(login))
        error = ErrorCode((await wire.exchange(link, SASL_HANDSHAKE, 1, handshake)).error_code)
        if error is not NONE:
            raise Broken(f"SaslHandshake of {login.user} fails with {error.name}")
        exchange = login.exchange(wire.random)
        token: bytes | None = exchange.first()
        while token is not None:
            answer = await wire.exchange(
                link, SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token)
            )
            error = ErrorCode(answer.error_code)
            if error is not NONE:
                break
            try:
                token = exchange.evaluate(answer.auth_bytes)
            except AuthenticationFailed as failure:
                raise Broken(f"{login.user} rejects a SASL message of the broker: {failure}") from failure
        wire.say(f"{login.user} logs in with {login.password}: {error.name}")
        possible = before | self._possible(login.user)
        if error is NONE and login.password not in possible:
            raise Broken(f"{login.user} has logged in with {login.password}; valid passwords are {possible}")
        if error is not NONE and possible == {login.password}:
            raise Broken(f"a login of {login.user} with the right password fails with {error.name}")
        if error is NONE and not 0 < answer.session_lifetime_ms <= SESSION_MS:
            raise Broken(
                f"the session of {login.user} lasts {answer.session_lifetime_ms} ms: not positive, or too long"
            )
        return error is NONE

    def _possible(self, user: str) -> set[str | None]:
        if user == CAROL:
            return {CAROLS_PASSWORD}
        return set(self._histories[user].possible)

    async def _work(self, wire: Wire, link: Link, login: Login, *, stays_too_long: bool) -> None:
        """Send requests on a connection that is logged in, and reauthenticate now and then.

        If ``stays_too_long`` is true, never reauthenticate, and let the session expire at the end.
        """
        ends_ms = wire.now_ms() + SESSION_MS
        for _ in range(wire.random.randint(1, 5)):
            await asyncio.sleep(wire.random.uniform(*WORK_S))
            if wire.now_ms() < ends_ms:
                # The broker's clock may be ahead: then the session has expired, and the connection is closed.
                await wire.exchange(link, METADATA, 12, MetadataRequest(topics=[]))
            if not stays_too_long and wire.random.random() < 0.5:
                again_ms = wire.now_ms()
                if not await self._log_in(wire, link, login):
                    await self._check_not_served(wire, link, "the second login failed")
                    return
                self.stage.reached(LOGS_IN_AGAIN)
                ends_ms = again_ms + SESSION_MS
        if stays_too_long:
            # The session began before its response arrived.
            await asyncio.sleep(max(ends_ms - wire.now_ms(), 0) / 1000 + 1)
            await self._check_not_served(wire, link, "its session has ended")
            self.stage.reached(SESSION_ENDED)

    async def _check_not_served(self, wire: Wire, link: Link, why: str) -> None:
        try:
            answer = await wire.exchange(link, METADATA, 12, MetadataRequest(topics=[]))
        except Gone:
            answer = None
        self.stage.reached(NOT_LOGGED_IN)
        # In the middle of a login the response is an error (ILLEGAL_SASL_STATE), and the connection is closed.
        if answer is not None and (answer.brokers or answer.cluster_id is not None):
            raise Broken(f"{wire.name} gets a response without a valid login ({why}): {answer}")

    # ---- at the end

    def check(self) -> None:
        for node in self.stage.cluster.running_nodes():
            for user, history in self._histories.items():
                kept = node.metadata.image.credentials.get((user, SCRAM_TYPE))
                if (kept is None) != (history.value is None):
                    raise Broken(
                        f"{user} has the password {history.value}, but node {node.node_id} has the credential {kept}"
                    )
                if kept is not None and history.value is not None:
                    salted = _salted(history.value, kept.salt, kept.iterations)
                    if stored_key("sha256", client_key("sha256", salted)) != kept.stored_key:
                        raise Broken(
                            f"node {node.node_id}: the credential of {user} does not match the password {history.value}"
                        )


def _mechanism(login: Login) -> str:
    return "PLAIN" if login.user == CAROL else SCRAM_SHA_256


def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
