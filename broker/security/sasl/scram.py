"""SCRAM: the client proves that it knows the password without sending it (RFC 5802, RFC 7677; ``ScramSaslServer``).

    server = ScramServer("SCRAM-SHA-256", find_user, find_token)
    server_first = await server.evaluate(client_first)  # suspends only to look up the keys of a delegation token
    server_final = await server.evaluate(client_final)
    server.user

Kafka's dialect: no channel binding, ASCII names, passwords without SASLprep, one extension (`tokenauth`).
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from broker.metadata.scram_credentials import DIGESTS, ITERATIONS_MIN, ScramKeys, keys_of, stored_key
from broker.security.principals import parse
from broker.security.sasl.failures import InvalidCredentials, Unanswered
from broker.security.sasl.mechanism import AuthenticationFailed
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from broker.metadata.token_control import TokenCredential

TOKEN_AUTH: Final = "tokenauth"

# All quantifiers are possessive: backtracking over half a megabyte of input would block the event loop.
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]++"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*+(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]++={_VALUE})*+"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,(?:m={_VALUE},)?"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(rf"c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}")
"""Pattern of the client's final message without its last part, the proof."""
_PROOF: Final = re.compile(_BASE64)
_RANDOM_BYTES: Final = 17


class ScramCredential(Protocol):
    """The stored keys of a password, as in ``UserScramCredentialRecord``: enough to verify a proof, not to create one."""

    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...


FindUser = Callable[[str], ScramCredential | None]
FindToken = Callable[[str], "Awaitable[TokenCredential | None]"]
"""Looks up a delegation token by its id, which the client sends as its user name."""


def credential(
    password: str, mechanism: str, iterations: int = ITERATIONS_MIN, salt: bytes | None = None
) -> ScramKeys:
    """Derive the keys of a password. Takes milliseconds by design, so do not call it on the event loop."""
    salt = random_text().encode() if salt is None else salt
    return keys_of(password.encode("utf-8", "replace"), mechanism, salt, iterations)


def xor(first: bytes, second: bytes) -> bytes:
    """XOR of two byte strings of the same length."""
    return (int.from_bytes(first) ^ int.from_bytes(second)).to_bytes(len(first))


def random_text() -> str:
    """A nonce or salt of letters and digits, with at least 130 random bits, as Kafka's have."""
    return secrets.token_hex(_RANDOM_BYTES)


def sasl_name(user: str) -> str:
    """Escape a user name for a SCRAM message (RFC 5802 5.1).

    >>> sasl_name("a=b,c")
    'a=3Db=2Cc'
    """
    return user.replace("=", "=3D").replace(",", "=2C")


def user_of(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


class _ClientFirst(NamedTuple):
    user: str
    nonce: str
    authorization_id: str
    bare: str
    """The message without its GS2 header. Only this part of the message is signed."""
    by_token: bool


class _Challenge(NamedTuple):
    credential: ScramCredential
    nonce: str
    signed: str
    """The beginning of the signed AuthMessage (RFC 5802): all of it except the client's final message."""


class ScramServer:
    """The server side of one SCRAM exchange, with two messages of the client."""

    def __init__(
        self,
        mechanism: str,
        find_user: FindUser,
        find_token: FindToken,
        nonce: Callable[[], str] = random_text,
    ) -> None:
        self.mechanism = mechanism
        self.is_complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.by_token = False
        self.refused = ""
        self._digest = DIGESTS[mechanism]
        self._find_user = find_user
        self._find_token = find_token
        self._make_nonce = nonce
        self._is_begun = False
        self._challenge: _Challenge | None = None

    async def evaluate(self, token: bytes) -> bytes:
        message = token.decode("utf-8", "replace")
        if not self._is_begun:
            self._is_begun = True
            first = self._client_first(message)
            return self._challenge_of(first, await self._credential(first))
        challenge, self._challenge = self._challenge, None
        if challenge is None:
            raise Unanswered(self.mechanism, "Unexpected challenge after the end of the exchange")
        return self._final(message, challenge)

    async def _credential(self, first: _ClientFirst) -> ScramCredential:
        """Look up the credential of the user or delegation token that the client named."""
        if not first.by_token:
            known = self._find_user(first.user)
            if known is None:
                raise self._refused("Authentication failed: Invalid user credentials")
            self.user = first.user
            return known
        found = await self._find_token(first.user)
        if found is None:
            raise self._refused(f"Token Authentication failed: Invalid tokenId : {first.user}")
        _, self.user = parse(found.owner)
        self.by_token, self.expires_ms = True, found.expires_ms
        return found

    def _challenge_of(self, first: _ClientFirst, credential: ScramCredential) -> bytes:
        if first.authorization_id and first.authorization_id != first.user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < ITERATIONS_MIN:
            raise self._refused(
                f"Iterations {credential.iterations} is less than the minimum {ITERATIONS_MIN} for {self.mechanism}"
            )
        nonce = first.nonce + self._make_nonce()
        answer = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._challenge = _Challenge(credential, nonce, f"{first.bare},{answer}")
        return answer.encode()

    def _client_first(self, message: str) -> _ClientFirst:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise self._refused("Invalid SCRAM client first message format")
        # The last one counts. The greedy search also skips any number of other extensions, which are ignored.
        _, _, token_auth = match["extensions"].rpartition(f",{TOKEN_AUTH}=")
        return _ClientFirst(
            user=user_of(match["name"]),
            nonce=match["nonce"],
            authorization_id=match["authzid"] or "",
            bare=match["bare"],
            by_token=token_auth.partition(",")[0].lower() == "true",
        )

    def _final(self, message: str, challenge: _Challenge) -> bytes:
        unproved, has_proof, proof = message.rpartition(",p=")
        match = _CLIENT_FINAL.fullmatch(unproved)
        if not has_proof or match is None or _PROOF.fullmatch(proof) is None:
            raise self._refused("Invalid SCRAM client final message format")
        if not hmac.compare_digest(match["nonce"], challenge.nonce):
            raise self._refused("Invalid client nonce in the final client message.")
        # As in Kafka, extensions in this message are not part of the signed text, and the channel binding is not checked.
        signed = f"{challenge.signed},c={match['channel']},r={match['nonce']}".encode()
        self._verify(b64decode(proof), signed, challenge.credential)
        self.is_complete = True
        signature = hmac.digest(challenge.credential.server_key, signed, self._digest)
        return b"v=" + b64encode(signature)

    def _verify(self, proof: bytes, signed: bytes, credential: ScramCredential) -> None:
        signature = hmac.digest(credential.stored_key, signed, self._digest)
        if len(proof) != len(signature):
            raise Unanswered(self.mechanism, "Argument arrays must be of the same length")
        if not hmac.compare_digest(stored_key(self._digest, xor(signature, proof)), credential.stored_key):
            raise self._refused("Invalid client credentials")

    def _refused(self, reason: str) -> InvalidCredentials:
        return InvalidCredentials(self.mechanism, reason)
