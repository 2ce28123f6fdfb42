"""OAUTHBEARER: the client sends a token that an identity provider has issued (RFC 7628; ``OAuthBearerSaslServer``)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from broker.security.sasl.failures import InvalidCredentials, Unanswered
from broker.security.sasl.mechanism import AuthenticationFailed
from protocol.named_tuple import NamedTuple

MECHANISM: Final = "OAUTHBEARER"
SEPARATOR: Final = "\x01"
# All quantifiers are possessive: backtracking over half a megabyte of input would block the event loop.
_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01)*+)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class Token(NamedTuple):
    """The content of a valid token, as far as the broker needs it."""

    principal: str
    expires_ms: int


class InvalidToken(Exception):
    """A validator refused the token.

    The client gets the status and scope. The text is logged, and does not contain the token.
    """

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope

    def json(self) -> str:
        """The error as JSON (RFC 7628 3.2.2), with Kafka's spaces."""
        if self.scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":"{self.scope}"}}'


class _Refusal(NamedTuple):
    """The error for a refused token, stored until the client confirms the refusal.

    It has only the texts of the exception, whose traceback would keep the token in memory.
    """

    json: str
    reason: str


class MalformedToken(Exception):
    """A token that makes Kafka's server throw an unexpected exception: the connection closes without a response."""


Validate = Callable[[str], Awaitable[Token]]


class OAuthBearerServer:
    """The server side of one OAUTHBEARER exchange. If the token is refused, the response is JSON, the client confirms
    it with 0x01, and the exchange fails."""

    def __init__(self, validate: Validate) -> None:
        self.mechanism = MECHANISM
        self.is_complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.by_token = False
        self._validate = validate
        self._refusal: _Refusal | None = None

    async def evaluate(self, token: bytes) -> bytes:
        refusal, self._refusal = self._refusal, None
        if token == SEPARATOR.encode() and refusal is not None:
            raise AuthenticationFailed(refusal.json, f"{refusal.json}: {refusal.reason}")
        try:
            value, authorization_id = _client_first(token)
        except InvalidCredentials as failure:
            if refusal is not None:
                failure.reason += f"; the token before it is refused: {refusal.reason}"
            raise
        try:
            found = await self._validate(value)
        except (InvalidToken, MalformedToken) as error:
            return self._refuse(error)
        return self._accept(found, authorization_id)

    @property
    def refused(self) -> str:
        return "" if self._refusal is None else self._refusal.reason

    def _accept(self, token: Token, authorization_id: str) -> bytes:
        # A JSON string may contain a lone surrogate, which cannot be encoded.
        principal = token.principal.encode("utf-8", "replace").decode()
        if authorization_id and authorization_id != principal:
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({principal})"
            )
        self.user, self.expires_ms, self.is_complete = principal, token.expires_ms, True
        return b""

    def _refuse(self, error: InvalidToken | MalformedToken) -> bytes:
        if isinstance(error, MalformedToken):
            raise Unanswered(MECHANISM, str(error)) from None
        self._refusal = _Refusal(error.json(), str(error))
        return self._refusal.json.encode()


def _client_first(message: bytes) -> tuple[str, str]:
    """(token, authorization id or ``""``). Extensions are allowed; neither of Kafka's validators rejects any."""
    match = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if match is None:
        raise InvalidCredentials(MECHANISM, "Invalid OAUTHBEARER client first message")
    # The last `auth` counts. Any number of other pairs is ignored.
    _, found, last = f"{SEPARATOR}{match['pairs']}".rpartition(f"{SEPARATOR}auth=")
    if not found:
        raise InvalidCredentials(MECHANISM, "Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = _AUTH.fullmatch(last.partition(SEPARATOR)[0])
    if auth is None:
        raise InvalidCredentials(MECHANISM, "Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth["scheme"].lower() != "bearer":
        raise Unanswered(MECHANISM, "Invalid scheme in OAUTHBEARER client first message")
    return auth["token"], match["authzid"] or ""
