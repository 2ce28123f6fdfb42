"""The first requests of a client: choosing API versions, and the login by SASL.

``ask(api, request)`` is the client's function that sends a request, such as ``"sasl_handshake"``, and returns the response.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from .messages.api_versions import ApiVersionsResponse
from .messages.index import APIS
from .messages.sasl_authenticate import SaslAuthenticateRequest
from .messages.sasl_handshake import SaslHandshakeRequest

KEYS: Final = {name: key for key, (name, *_) in APIS.items()}
"""API key by the name of the API."""

Versions = Mapping[int, tuple[int, int]]
"""(lowest, highest) version of each API, by its key."""
Conversation = Generator[bytes, bytes, None]
"""The client's side of a SASL mechanism: a generator that yields messages for the broker, receives the broker's messages by
``send``, and returns when there are no more.
"""


class LoginRefused(Exception):
    """The broker has rejected the login. ``mechanisms`` has the broker's mechanisms if the broker does not support the
    requested one, else None.
    """

    def __init__(
        self, error_code: int, message: str | None, mechanisms: tuple[str, ...] | None = None
    ) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message
        self.mechanisms = mechanisms


def announced_versions(response: ApiVersionsResponse) -> Versions:
    """The (lowest, highest) version of each API that a broker announces, by API key."""
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


def common_version(announced: Versions, key: int, lowest: int, highest: int) -> int | None:
    """The highest version from ``lowest`` to ``highest`` of an API that the broker announces; None if it announces none of
    them.
    """
    first, last = announced.get(key, (0, -1))
    version = min(last, highest)
    return version if version >= max(first, lowest) else None


def log_in(ask: Callable[[str, Any], Any], mechanism: str, conversation: Conversation) -> None:
    """Log in (KIP-43, KIP-152). Raises ``LoginRefused``, or the error that ``conversation`` raises if the broker does not
    prove its identity.
    """
    chosen = ask("sasl_handshake", SaslHandshakeRequest(mechanism=mechanism))
    if chosen.error_code:
        raise LoginRefused(chosen.error_code, None, tuple(chosen.mechanisms))
    said = next(conversation, None)
    while said is not None:
        answer = ask("sasl_authenticate", SaslAuthenticateRequest(auth_bytes=said))
        if answer.error_code:
            raise LoginRefused(answer.error_code, answer.error_message)
        try:
            said = conversation.send(bytes(answer.auth_bytes))
        except StopIteration:
            return
