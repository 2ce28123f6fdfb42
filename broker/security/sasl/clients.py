"""The client side of SASL, for connections between brokers.

    client = sasl_client(client_settings(configs, jvm), clock.now_ms)
    token = client.first()
    while token is not None:
        token = client.evaluate(response_of_the_server_to(token))

The clients behave like the JDK's ``PlainSaslClient``, and Kafka's ``ScramSaslClient`` and ``OAuthBearerSaslClient``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, Protocol

from broker.metadata.scram_credentials import DIGESTS, ITERATIONS_MIN, client_key, server_key, stored_key
from broker.security.listener_configs import ListenerConfigs
from broker.security.sasl import scram, unsecured_jws
from broker.security.sasl.jaas import Jvm, server_context
from broker.security.sasl.mechanism import AuthenticationFailed
from broker.security.sasl.settings import INTER_BROKER, LOGIN_MODULES, OAUTHBEARER, PLAIN
from protocol.slotted import slotted
from storage.config_def import ConfigError

_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>[^,]+),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})(?:,.*)?"
)
_SERVER_FINAL: Final = re.compile(rf"e=(?P<error>[^,=]+)|v=(?P<signature>{_BASE64})(?:,.*)?")


class SaslClient(Protocol):
    mechanism: str

    def first(self) -> bytes:
        """The client's first token."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """The client's next token; None when the exchange is complete. Raises AuthenticationFailed."""
        ...


@slotted(frozen=True)
class ClientSettings:
    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    by_token: bool = False
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the login module, for OAUTHBEARER."""


def client_settings(configs: ListenerConfigs, jvm: Jvm) -> ClientSettings:
    """The settings with which a broker logs in to other brokers: ``sasl.mechanism.inter.broker.protocol`` and the login
    module of that mechanism.
    """
    mechanism = configs.value(INTER_BROKER)
    if mechanism not in LOGIN_MODULES:
        raise ConfigError.of(INTER_BROKER, mechanism, f"Odradek supports {', '.join(LOGIN_MODULES)}")
    context, module = server_context(configs, mechanism, jvm), LOGIN_MODULES[mechanism]
    options = next((each.options for each in context.modules if each.name == module), None)
    if options is None:
        raise ConfigError(f"The SASL mechanism {mechanism} needs the login module {module}")
    if mechanism == OAUTHBEARER:
        if unsecured_jws.token(options, now_ms=0) is None:
            raise ConfigError(
                f"The login module {module} needs options that create a token, to log in to other brokers"
            )
        return ClientSettings(mechanism, options=options)
    user, password = options.get("username"), options.get("password")
    if not user or not password:
        raise ConfigError(
            f"The login module {module} needs username and password, to log in to other brokers"
        )
    by_token = mechanism != PLAIN and options.get(scram.TOKEN_AUTH, "").lower() == "true"
    return ClientSettings(mechanism, user, password, by_token)


def sasl_client(settings: ClientSettings, now_ms: Callable[[], int]) -> SaslClient:
    """Create the client side of a new SASL exchange."""
    if settings.mechanism == PLAIN:
        return PlainClient(settings.user, settings.password)
    if settings.mechanism == OAUTHBEARER:
        return OAuthBearerClient(settings.options, now_ms)
    return ScramClient(settings.mechanism, settings.user, settings.password, by_token=settings.by_token)


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self.mechanism = PLAIN
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def evaluate(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise AuthenticationFailed("The server has answered a SASL/PLAIN message with a challenge")
        return None


class OAuthBearerClient:
    """The client side of OAUTHBEARER. It creates a new token for each exchange."""

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        self.mechanism = OAUTHBEARER
        self._options = options
        self._now_ms = now_ms

    def first(self) -> bytes:
        token = unsecured_jws.token(self._options, self._now_ms())
        extensions = "".join(
            f"\x01{name}={value}" for name, value in unsecured_jws.extensions(self._options).items()
        )
        return f"n,,\x01auth=Bearer {token}{extensions}\x01\x01".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Confirm the error in the server's challenge with 0x01. The server then fails the exchange (RFC 7628 3.2.3)."""
        return b"\x01" if challenge else None


class ScramClient:
    """The client side of SCRAM. `evaluate` derives keys: with many iterations, do not call it on the event loop."""

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        by_token: bool = False,
        nonce: Callable[[], str] = scram.random_text,
    ) -> None:
        self.mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._password = password.encode()
        self._nonce = nonce()
        extension = f",{scram.TOKEN_AUTH}=true" if by_token else ""
        self._bare = f"n={scram.sasl_name(user)},r={self._nonce}{extension}"
        self._signature: bytes | None = None
        """The server signature that the client expects at the end."""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        message = challenge.decode("utf-8", "replace")
        if self._signature is None:
            return self._final(message)
        match = _SERVER_FINAL.fullmatch(message)
        if match is None:
            raise AuthenticationFailed("Invalid SCRAM server final message format")
        if match["error"]:
            raise AuthenticationFailed(
                f"Sasl authentication using {self.mechanism} failed with error: {match['error']}"
            )
        if not hmac.compare_digest(b64decode(match["signature"]), self._signature):
            raise AuthenticationFailed("Invalid server signature in server final message")
        return None

    def _final(self, server_first: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise AuthenticationFailed("Invalid SCRAM server first message format")
        if not match["nonce"].startswith(self._nonce):
            raise AuthenticationFailed("Invalid server nonce: does not start with client nonce")
        iterations = int(match["iterations"])
        if iterations < ITERATIONS_MIN:
            raise AuthenticationFailed(
                f"Requested iterations {iterations} is less than the minimum {ITERATIONS_MIN} for {self.mechanism}"
            )
        digest = self._digest
        salted = hashlib.pbkdf2_hmac(digest, self._password, b64decode(match["salt"]), iterations)
        key = client_key(digest, salted)
        unproved = f"c=biws,r={match['nonce']}"
        signed = f"{self._bare},{server_first},{unproved}".encode()
        proof = scram.xor(key, hmac.digest(stored_key(digest, key), signed, digest))
        self._signature = hmac.digest(server_key(digest, salted), signed, digest)
        return f"{unproved},p={b64encode(proof).decode()}".encode()
