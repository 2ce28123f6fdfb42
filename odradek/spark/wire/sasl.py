"""The client's side of SASL: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628) with a configured token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Generator

from odradek.spark.wire.errors import Authentication, BadSettings
from odradek.spark.wire.settings import MECHANISMS, ClientSettings

# A generator that yields the client's messages and is sent the server's; it ends when the client has no further message.
Conversation = Generator[bytes, bytes, None]

_ITERATIONS_MIN = 4096
_ITERATIONS_MAX = 10_000_000
_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")


def conversation(settings: ClientSettings) -> Conversation:
    """Return the SASL exchange for ``kafka.sasl.mechanism``. Raises ``BadSettings`` for an unknown mechanism.

    If credentials are missing, the exchange raises ``BadSettings`` at its first message."""
    start = _MECHANISMS.get(settings.sasl_mechanism)
    if start is None:
        names = ", ".join(MECHANISMS)
        raise BadSettings(
            "UNSUPPORTED_SASL_MECHANISM",
            f"kafka.sasl.mechanism is {settings.sasl_mechanism}, but this client supports only {names}",
        )
    return start(settings)


def jaas_options(config: str) -> dict[str, str]:
    """Parse the options of a login module: ``org…PlainLoginModule required username="u" password="p";``."""
    options = {}
    for name, value in _OPTION.findall(config):
        quoted = value[0] in "\"'"
        options[name] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return options


def _credentials(settings: ClientSettings) -> tuple[str, str]:
    options = jaas_options(settings.sasl_jaas_config)
    if "username" not in options or "password" not in options:
        raise BadSettings(
            "INVALID_CONFIG",
            f"kafka.sasl.jaas.config needs a username and a password for {settings.sasl_mechanism}: "
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";',
        )
    return options["username"], options["password"]


# -- PLAIN --------------------------------------------------------------------------------------------------------------


def _plain(settings: ClientSettings) -> Conversation:
    username, password = _credentials(settings)
    yield f"\0{username}\0{password}".encode()


# -- SCRAM --------------------------------------------------------------------------------------------------------------


def _scram(digest: str) -> Callable[[ClientSettings], Conversation]:
    def start(settings: ClientSettings) -> Conversation:
        username, password = _credentials(settings)
        return scram(digest, username, password, secrets.token_urlsafe(24))

    return start


def scram(digest: str, username: str, password: str, nonce: str) -> Conversation:
    """A SCRAM exchange. Raises ``Authentication`` unless the server proves that it knows the password too."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}"
    server_first = (yield f"n,,{bare}".encode()).decode()
    said = _attributes(server_first)
    try:
        salt, iterations = base64.b64decode(said["s"]), int(said["i"])
        full_nonce = said["r"]
    except (KeyError, ValueError):
        raise _failed(
            f"the server's first message cannot be parsed ({said.get('e', 'no reason given')})"
        ) from None
    if not full_nonce.startswith(nonce) or full_nonce == nonce:
        raise _failed("the server responded with another nonce")
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise _failed(
            f"the server requests {iterations} iterations, which must be {_ITERATIONS_MIN} to {_ITERATIONS_MAX}"
        )
    # The password is used without SASLprep, as in Kafka's ScramFormatter.java.
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    without_proof = f"c=biws,r={full_nonce}"
    message = f"{bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(stored_key, message, digest)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    server_key = hmac.digest(salted, b"Server Key", digest)
    expected = base64.b64encode(hmac.digest(server_key, message, digest)).decode()
    said = _attributes(server_final.decode())
    if not hmac.compare_digest(said.get("v", ""), expected):
        raise _failed(f"the server does not know the password ({said.get('e', 'its signature is wrong')})")


def _attributes(message: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in message.split(","))
    return {name: value for name, _, value in pairs}


def _failed(why: str) -> Authentication:
    return Authentication("SASL_AUTHENTICATION_FAILED", f"SCRAM failed: {why}")


# -- OAUTHBEARER --------------------------------------------------------------------------------------------------------


def _oauthbearer(settings: ClientSettings) -> Conversation:
    token = settings.sasl_oauthbearer_token or _unsecured_token(settings)
    error = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if error:
        # The server ends the exchange only after this message (RFC 7628, section 3.2.3).
        yield b"\x01"


def _unsecured_token(settings: ClientSettings) -> str:
    """The unsecured token that Kafka's own client creates by default (OAuthBearerUnsecuredLoginCallbackHandler.java)."""
    subject = jaas_options(settings.sasl_jaas_config).get("unsecuredLoginStringClaim_sub")
    if subject is None:
        raise BadSettings(
            "INVALID_CONFIG", "OAUTHBEARER needs kafka.sasl.oauthbearer.token: a token that stays valid"
        )
    # Whole milliseconds: Kafka rounds, and would take a later time in the same millisecond for one in the future.
    now = time.time_ns() // 1_000_000 / 1000
    claims = {"sub": subject, "iat": now, "exp": now + 3600}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


_MECHANISMS: dict[str, Callable[[ClientSettings], Conversation]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram("sha256"),
    "SCRAM-SHA-512": _scram("sha512"),
    "OAUTHBEARER": _oauthbearer,
}
