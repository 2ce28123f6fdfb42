"""Unsigned tokens: which ones Kafka accepts (recorded from 4.3.1), and those that a broker creates."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.loop.coroutines import start
from broker.loop.life import NodeLife
from broker.security.sasl.oauthbearer import InvalidToken, MalformedToken, Token
from broker.security.sasl.unsecured_jws import (
    UnsecuredValidator,
    claims_of,
    extensions,
    token,
    validator_options,
)
from storage.config_def import ConfigError
from tests.broker.security.sasl.world import NOW_MS, NOW_S, encoded, now_ms, unsecured

EXPIRES_S = NOW_S + 60


def validate(value: str, **options: str) -> Token:
    given = {f"unsecuredValidator{name}": text for name, text in options.items()}
    token = start(UnsecuredValidator(validator_options(given), now_ms)(value), NodeLife())
    assert isinstance(token, Token)
    return token


def validated(claims: dict[str, Any], **options: str) -> Token:
    return validate(unsecured({"sub": "alice", "exp": EXPIRES_S, **claims}), **options)


@pytest.mark.parametrize(
    ("claims", "token"),
    [
        ({}, Token("alice", EXPIRES_S * 1000)),
        ({"exp": EXPIRES_S + 0.5}, Token("alice", EXPIRES_S * 1000 + 500)),
        ({"exp": 1e300}, Token("alice", 2**63 - 1)),
        ({"iat": NOW_S}, Token("alice", EXPIRES_S * 1000)),
        ({"sub": " a b "}, Token(" a b ", EXPIRES_S * 1000)),
        ({"sub": True}, Token("true", EXPIRES_S * 1000)),
        ({"sub": None}, Token("null", EXPIRES_S * 1000)),
        ({"scope": ["a", 5, None]}, Token("alice", EXPIRES_S * 1000)),
        ({"aud": "anything", "nbf": "nonsense"}, Token("alice", EXPIRES_S * 1000)),
    ],
)
def test_a_token_has_a_principal_and_an_end(claims: dict[str, Any], token: Token) -> None:
    assert validated(claims) == token


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S}, "on or after the Expiration Time value"),
        ({"exp": "soon"}, "The 'exp' claim was not of type Number"),
        ({"exp": True}, "The 'exp' claim was not of type Number"),
        ({"iat": NOW_S + 1}, "was after the indicated time"),
        ({"iat": "now"}, "The 'iat' claim was not of type Number"),
        ({"sub": ""}, "No principal name in JWT claim: sub"),
        ({"sub": {}}, "No principal name in JWT claim: sub"),
        ({"sub": 5}, "The 'sub' claim was not of type String"),
        ({"sub": []}, "The 'sub' claim was not of type String"),
        ({"scope": 5}, "The 'scope' claim was not of type List"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        validated(claims)


@pytest.mark.parametrize("missing", ["sub", "exp"])
def test_claims_that_are_missing(missing: str) -> None:
    claims = {"sub": "alice", "exp": EXPIRES_S}
    del claims[missing]
    with pytest.raises(InvalidToken, match=r"No (principal name|expiration time)"):
        validate(unsecured(claims))


def test_times_may_be_askew_by_as_much_as_is_allowed() -> None:
    askew = {"iat": NOW_S + 10, "exp": NOW_S + 11}
    assert validated(askew, AllowableClockSkewMs="10000").principal == "alice"
    assert validated({"exp": NOW_S - 9}, AllowableClockSkewMs=" 10000 ").principal == "alice"
    with pytest.raises(InvalidToken):
        validated({"exp": NOW_S - 10}, AllowableClockSkewMs="10000")
    with pytest.raises(InvalidToken, match="was not after the Issued At time"):
        validated({"iat": NOW_S + 1, "exp": NOW_S + 1}, AllowableClockSkewMs="10000")


def test_the_claims_may_have_other_names() -> None:
    claims = {"name": "bob", "may": ["read"]}
    options = {"PrincipalClaimName": " name ", "ScopeClaimName": "may", "RequiredScope": "read"}
    assert validated(claims, **options).principal == "bob"


@pytest.mark.parametrize("scope", [["a", "b"], [" b ", "a", "c"]])
def test_a_token_with_the_required_scope(scope: list[str]) -> None:
    assert validated({"scope": scope}, RequiredScope="a b").principal == "alice"


@pytest.mark.parametrize("scope", ["a b", "a", ["a"], [], "", None])
def test_a_token_without_the_required_scope(scope: Any) -> None:
    with pytest.raises(InvalidToken) as refused:
        validated({"scope": scope}, RequiredScope="a  b")
    assert refused.value.scope == "[a, b]"


CLAIMS = encoded({"sub": "alice", "exp": EXPIRES_S})
NONE = encoded({"alg": "none"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (f"{NONE}.{CLAIMS}", "must have 3 dot-separated"),
        (f"{NONE}.{CLAIMS}.x.", "must have 3 dot-separated"),
        (".", "must have 3 dot-separated"),
        (f"{NONE}..", "contains '..'"),
        (f"{NONE}.{CLAIMS}.sig", "must not contain a digital signature"),
        (f"{NONE}.{CLAIMS}.=", "must not contain a digital signature"),
        (unsecured({}, {"alg": "RS256"}), "must have 'none' for an algorithm"),
        (unsecured({}, {"alg": None}), "must have 'none' for an algorithm"),
        (f"{NONE}.~~~.", "malformed Base64"),
        (f"{NONE}.a+b/.", "malformed Base64"),
        (f"{NONE}.abcde.", "malformed Base64"),
        (unsecured("{"), "malformed JSON"),
        (unsecured('{"exp":NaN}'), "malformed JSON"),
        (unsecured('{"a":"\x01"}'), "malformed JSON"),
        (unsecured(b"\xff"), "malformed JSON"),
        (unsecured("[" * 100_000), "malformed JSON"),
        (unsecured('{"exp":' + "9" * 5000 + "}"), "malformed JSON"),
        (unsecured("[]"), "No expiration time in JWT"),
    ],
)
def test_a_serialization_that_is_refused(value: str, reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason):
        validate(value)


@pytest.mark.parametrize("header", ["{}", "[]", "5", ""])
def test_without_an_algorithm_kafka_stumbles(header: str) -> None:
    with pytest.raises(MalformedToken):
        validate(f"{encoded(header)}.{CLAIMS}.")


def test_what_follows_the_claims_is_not_read() -> None:
    assert claims_of(unsecured(' {"a":1} and more', '{"alg":"none"} x')) == {"a": 1}


ATOMS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5)


@given(ATOMS | st.lists(ATOMS, max_size=3))
def test_any_claim_is_taken_or_refused(value: Any) -> None:
    for name in ("sub", "exp", "iat", "scope"):
        with contextlib.suppress(InvalidToken):
            assert isinstance(validated({name: value}, RequiredScope="a"), Token)


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("AllowableClockSkewMs", "x", 'For input string: "x"'),
        ("AllowableClockSkewMs", "-1", "Allowable clock skew millis must not be negative: -1"),
        ("RequiredScope", 'a "b"', 'Invalid scope value: "b"'),
    ],
)
def test_options_that_are_refused(option: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validator_options({f"unsecuredValidator{option}": text})
    assert str(refused.value) == told


LOGIN = {
    "unsecuredLoginStringClaim_sub": "broker",
    "unsecuredLoginNumberClaim_level": "7",
    "unsecuredLoginListClaim_scope": "|a|b",
    "unsecuredLoginExtension_traceId": "x",
    "unsecuredValidatorRequiredScope": "a",
}


def test_a_login_makes_a_token_that_the_validator_takes() -> None:
    made = token(LOGIN, NOW_MS)
    assert made is not None
    assert validate(made, RequiredScope="b") == Token("broker", NOW_MS + 3_600_000)
    claims = claims_of(made)
    assert (claims["level"], claims["scope"], claims["iat"]) == (7, ["a", "b"], NOW_S)
    assert extensions(LOGIN) == {"traceId": "x"}


def test_a_login_has_the_lifetime_and_the_principal_that_it_is_given() -> None:
    made = token(
        {
            "unsecuredLoginLifetimeSeconds": "60",
            "unsecuredLoginPrincipalClaimName": "me",
            "unsecuredLoginStringClaim_me": 'a"b',
        },
        NOW_MS,
    )
    assert made is not None
    assert validate(made, PrincipalClaimName="me") == Token('a"b', EXPIRES_S * 1000)


@pytest.mark.parametrize("text", ["", "|", "x"])
def test_a_list_of_nothing(text: str) -> None:
    made = token({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginListClaim_l": text}, NOW_MS)
    assert made is not None
    assert claims_of(made)["l"] == []


def test_without_options_a_login_makes_no_token() -> None:
    assert token({}, NOW_MS) is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"unsecuredLoginExtension_a": "b"}, "Extensions provided in login context without a token"),
        ({"unsecuredValidatorRequiredScope": "a"}, "No principal name in JWT claim: sub"),
        ({"unsecuredLoginNumberClaim_sub": "5"}, "No principal name in JWT claim: sub"),
        ({"unsecuredLoginStringClaim_exp": "5"}, "Cannot explicitly set the 'exp' claim"),
        ({"unsecuredLoginNumberClaim_x": "nan"}, 'For input string: "nan"'),
        ({"unsecuredLoginLifetimeSeconds": "1h"}, 'For input string: "1h"'),
    ],
)
def test_a_login_that_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        token(options, NOW_MS)
    assert str(refused.value) == told


def test_json_is_read_with_its_last_member_of_a_name() -> None:
    assert claims_of(unsecured('{"a":1,"a":2}')) == json.loads('{"a":2}')
