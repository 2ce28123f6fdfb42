"""The exchange of a client and a broker before the first request: ApiVersions, and authentication by SASL."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from protocol.client import KEYS, LoginRefused, announced_versions, common_version, log_in
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeResponse

END_TXN = KEYS["end_txn"]


@pytest.mark.parametrize(
    ("first", "last", "version"), [(0, 9, 3), (0, 2, 2), (3, 3, 3), (2, 2, 2), (0, 1, None), (4, 9, None)]
)
def test_the_highest_version_of_both_is_taken(first: int, last: int, version: int | None):
    announced = announced_versions(
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=END_TXN, min_version=first, max_version=last)])
    )
    assert common_version(announced, END_TXN, 2, 3) == version
    assert common_version(announced, KEYS["produce"], 0, 99) is None


def answering(*responses: Any) -> tuple[list[Any], Callable[[str, Any], Any]]:
    """A function that returns these responses one after the other, and the list of the requests that it was called with."""
    said: list[Any] = []
    rest = iter(responses)

    def ask(api: str, request: Any) -> Any:
        said.append(request.mechanism if api == "sasl_handshake" else request.auth_bytes)
        return next(rest)

    return said, ask


def conversation(heard: list[bytes]) -> Generator[bytes, bytes, None]:
    heard.append((yield b"first"))
    heard.append((yield b"second"))


def test_a_login_goes_on_until_the_mechanism_has_nothing_to_say():
    heard: list[bytes] = []
    said, ask = answering(
        SaslHandshakeResponse(),
        SaslAuthenticateResponse(auth_bytes=b"challenge"),
        SaslAuthenticateResponse(auth_bytes=b"proof"),
    )
    log_in(ask, "SCRAM-SHA-256", conversation(heard))
    assert said == ["SCRAM-SHA-256", b"first", b"second"]
    assert heard == [b"challenge", b"proof"]


def test_a_mechanism_that_the_broker_lacks_is_refused_with_those_that_it_has():
    code = ErrorCode.unsupported_sasl_mechanism
    _, ask = answering(SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN", "OAUTHBEARER"]))
    with pytest.raises(LoginRefused) as raised:
        log_in(ask, "SCRAM-SHA-256", conversation([]))
    assert (raised.value.error_code, raised.value.mechanisms) == (code, ("PLAIN", "OAUTHBEARER"))


def test_a_login_that_the_broker_refuses_says_why():
    code = ErrorCode.sasl_authentication_failed
    said, ask = answering(
        SaslHandshakeResponse(), SaslAuthenticateResponse(error_code=code, error_message="no")
    )
    with pytest.raises(LoginRefused) as raised:
        log_in(ask, "PLAIN", conversation([]))
    assert (raised.value.error_code, raised.value.message, raised.value.mechanisms) == (code, "no", None)
    assert said == ["PLAIN", b"first"]
