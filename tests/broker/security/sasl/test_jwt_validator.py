"""Validation of signed tokens: issuer, audience and expiration (compared with Kafka's validator on jose4j)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.sasl.jwks import Jwk, parse_jwks, select
from broker.security.sasl.jwt_validator import Expectations, JwtValidator
from broker.security.sasl.oauthbearer import InvalidToken, MalformedToken, Token
from tests.broker.security.sasl.issuer import SECRET, jwk, jwks, signed
from tests.broker.security.sasl.world import NOW_MS, NOW_S, encoded, now_ms, unsecured

SKEW_S = 30
EXPIRES_S = NOW_S + 60
ANY = Expectations((), None, SKEW_S, "scope", "sub")
CLAIMS = {"sub": "alice", "exp": EXPIRES_S, "iat": NOW_S}


class Keys:
    def __init__(self, *names: str) -> None:
        self._keys = parse_jwks(jwks(*map(jwk, names or ("ec",))))

    async def find(self, algorithm: str, key_id: str | None) -> Jwk | None:
        return select(self._keys, algorithm, key_id)


async def validate(value: str, *names: str, expected: Expectations = ANY) -> Token:
    return await JwtValidator(expected, Keys(*names), now_ms)(value)


async def validated(claims: dict[str, Any], expected: Expectations = ANY) -> Token:
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value != "missing"}
    return await validate(signed(given), expected=expected)


async def reason(value: str, *names: str) -> str:
    with pytest.raises(InvalidToken) as refused:
        await validate(value, *names)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("ec", "ES256"),
        ("p384", "ES384"),
        ("rsa", "RS256"),
        ("rsa", "PS512"),
        ("ed", "EdDSA"),
        ("hmac", "HS256"),
    ],
)
async def test_a_token_that_the_issuer_has_signed_is_taken(name: str, algorithm: str) -> None:
    token = signed(CLAIMS, name, algorithm)
    assert await validate(token, "other", name) == Token("alice", EXPIRES_S * 1000)


async def test_a_signature_that_is_not_that_of_the_key() -> None:
    assert await reason(signed(CLAIMS, "other", kid="ec"))
    assert await reason(signed(CLAIMS)[:-4] + "AAAA")


@pytest.mark.parametrize(("name", "algorithm"), [("short", "RS256"), ("tiny", "HS256")])
async def test_a_key_that_is_too_short(name: str, algorithm: str) -> None:
    assert "InvalidKeyError" in await reason(signed(CLAIMS, name, algorithm), name)


async def test_what_the_issuer_calls_critical_must_be_known() -> None:
    assert await reason(signed(CLAIMS, crit=["unknown"], unknown=1))


async def test_claims_that_were_changed_after_the_signature() -> None:
    header, _, signature = signed(CLAIMS).split(".")
    assert "signature" in await reason(f"{header}.{encoded({**CLAIMS, 'sub': 'admin'})}.{signature}")


@pytest.mark.parametrize(
    "header",
    [{"alg": "none"}, {"alg": "HS256"}, {"alg": "RS256"}, {"alg": "ES384"}, {"alg": "XX"}, {"alg": 5}, {}],
)
async def test_the_header_does_not_choose_another_kind_of_key(header: dict[str, Any]) -> None:
    assert await reason(unsecured(CLAIMS, {"kid": "ec", **header}, signature="AAAA"))


async def test_a_public_key_is_no_secret_to_sign_with() -> None:
    public = jwk("rsa")
    assert await reason(signed(CLAIMS, "hmac", "HS256", kid="rsa"), "rsa")
    assert SECRET.decode() not in str(public)


@pytest.mark.parametrize("token", ["x", "a.b", "a.b.c", "a.b.c.d", ".a.b", "a..b", "." * 9, "a" * 99_999])
async def test_a_token_of_another_form(token: str) -> None:
    assert await reason(token)


async def test_a_token_without_a_signature_or_with_more_than_one() -> None:
    for token in (unsecured(CLAIMS), signed(CLAIMS) + ".", signed(CLAIMS) + ".AAAA"):
        assert "expected three sections" in await reason(token)


@pytest.mark.parametrize("header", [{"cty": "JWT"}, {"cty": "application/jwt"}])
async def test_a_token_within_a_token(header: dict[str, str]) -> None:
    assert await reason(signed(CLAIMS, **header)) == "The JWT contains a nested JWT"


@pytest.mark.parametrize(
    "claims", ["[]", "5", "x", '{"exp":NaN}', '{"sub":"a","sub":"b"}', "{" * 9999, b"\xff"]
)
async def test_claims_that_are_no_object_of_json(claims: Any) -> None:
    assert await reason(signed(claims)) == "Unable to parse the claims of the JWT"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - SKEW_S + 1, "iat": NOW_S - 99},
        {"exp": EXPIRES_S + 0.9},
        {"iat": EXPIRES_S},
        {"nbf": NOW_S + SKEW_S},
        {"sub": " alice "},
        {"scope": "a b"},
        {"scope": ["a", "b"]},
        {"scope": 5},
        {"iss": "any"},
        {"jti": "1"},
    ],
)
async def test_claims_that_are_taken(claims: dict[str, Any]) -> None:
    assert (await validated(claims)).principal == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": "missing"},
        {"exp": NOW_S - SKEW_S},
        {"exp": str(EXPIRES_S)},
        {"exp": True},
        {"exp": 10**30},
        {"iat": "missing"},
        {"iat": EXPIRES_S + 1},
        {"iat": -1},
        {"iat": "x"},
        {"nbf": NOW_S + SKEW_S + 1},
        {"nbf": EXPIRES_S + 1},
        {"sub": "missing"},
        {"sub": " "},
        {"sub": 5},
        {"scope": ""},
        {"scope": ["a", " a"]},
        {"iss": 5},
        {"jti": 5},
    ],
)
async def test_claims_that_are_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        await validated(claims)


async def test_kafka_stumbles_over_a_scope_that_is_no_text() -> None:
    with pytest.raises(MalformedToken):
        await validated({"scope": ["a", 5]})


@pytest.mark.parametrize("audience", ["broker", ["other", "broker"], ["test"]])
async def test_a_token_for_the_expected_audience(audience: Any) -> None:
    assert await validated({"aud": audience}, ANY._replace(audience=("broker", "test")))


@pytest.mark.parametrize("audience", ["missing", "broker", [], 5])
async def test_a_token_for_any_audience_is_taken_if_none_is_expected(audience: Any) -> None:
    """From Apache Kafka 4.4.0 on; before, such a broker refused every token with an audience."""
    assert await validated({"aud": audience})


@pytest.mark.parametrize("audience", ["missing", "other", [], ["other"], ["broker", 5]])
async def test_a_token_for_another_audience(audience: Any) -> None:
    with pytest.raises(InvalidToken):
        await validated({"aud": audience}, ANY._replace(audience=("broker",)))


async def test_a_token_of_the_expected_issuer() -> None:
    expected = ANY._replace(issuer="https://issuer")
    assert await validated({"iss": "https://issuer"}, expected)
    for other in ("https://issuer/", "missing"):
        with pytest.raises(InvalidToken):
            await validated({"iss": other}, expected)


async def test_subject_and_scope_may_have_other_names() -> None:
    expected = ANY._replace(subject_claim="client_id", scope_claim="scp")
    assert (await validated({"client_id": "app", "scope": ""}, expected)).principal == "app"
    with pytest.raises(InvalidToken):
        await validated({"client_id": "app", "scp": ""}, expected)


NAMES = ("sub", "exp", "iat", "nbf", "aud", "iss", "scope", "jti")
ATOMS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3)


@given(st.dictionaries(st.sampled_from(NAMES), ATOMS | st.lists(ATOMS, max_size=2)))
async def test_any_claims_are_taken_or_refused(claims: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidToken, MalformedToken):
        assert (await validated(claims)).expires_ms > NOW_MS - SKEW_S * 1000 - 1000


@given(st.text(alphabet="abcXYZ019-_=./~+", max_size=60))
async def test_any_token_is_taken_or_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        await validate(token)
