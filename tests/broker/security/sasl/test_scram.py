"""SCRAM: test vectors of the RFCs, exchanges with another implementation, and every way to fail."""

from __future__ import annotations

import contextlib
import hashlib
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient as OtherClient
from scramp import ScramMechanism as OtherMechanism

from broker.metadata.delegation_tokens import scram_keys
from broker.metadata.scram_credentials import (
    DIGESTS,
    TYPES,
    ScramKeys,
    client_key,
    server_key,
    stored_key,
)
from broker.metadata.token_control import TokenCredential
from broker.security.sasl.clients import ScramClient
from broker.security.sasl.failures import InvalidCredentials, Unanswered
from broker.security.sasl.mechanism import AuthenticationFailed
from broker.security.sasl.scram import (
    ScramCredential,
    ScramServer,
    credential,
    random_text,
    sasl_name,
    user_of,
)
from protocol.records.cluster_metadata import UserScramCredentialRecord
from tests.broker.security.sasl.world import NOW_MS, answer, exchange, failure

SHA_256 = "SCRAM-SHA-256"
KEYS = {mechanism: credential("secret", mechanism) for mechanism in DIGESTS}
TOKEN = TokenCredential(*scram_keys(b"hmac", SHA_256, b"salt"), "User:o:wner", NOW_MS)
# RFC 7677 3
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = f"n,,n=user,r={CLIENT_NONCE}"
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


async def no_token(token_id: str) -> None:
    return None


async def one_token(token_id: str) -> TokenCredential | None:
    return TOKEN if token_id == "token-id" else None


def server(mechanism: str = SHA_256, nonce: str = "server", **users: ScramCredential) -> ScramServer:
    known = {"alice": KEYS[mechanism], "a=b,c": KEYS[mechanism], **users}
    return ScramServer(mechanism, known.get, one_token, nonce=lambda: nonce)


def of_rfc() -> ScramServer:
    return server(nonce=SERVER_NONCE, user=credential("pencil", SHA_256, 4096, SALT))


async def test_the_exchange_of_rfc_7677() -> None:
    given = of_rfc()
    assert await answer(given, CLIENT_FIRST) == SERVER_FIRST.encode()
    assert await answer(given, CLIENT_FINAL) == SERVER_FINAL.encode()
    assert (given.is_complete, given.user) == (True, "user")
    assert (given.expires_ms, given.by_token) == (None, False)


def test_the_client_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", nonce=lambda: CLIENT_NONCE)
    assert client.first() == CLIENT_FIRST.encode()
    assert client.evaluate(SERVER_FIRST.encode()) == CLIENT_FINAL.encode()
    assert client.evaluate(SERVER_FINAL.encode()) is None


def test_the_keys_of_rfc_5802() -> None:
    """SCRAM-SHA-1 is no mechanism of Kafka's, but its keys are computed in the same way."""
    salted = hashlib.pbkdf2_hmac("sha1", b"pencil", b64decode("QSXCR+Q6sek8bf92"), 4096)
    assert client_key("sha1", salted).hex() == "e234c47bf6c36696dd6d852b99aaa2ba26555728"
    assert stored_key("sha1", client_key("sha1", salted)).hex() == "e9d94660c39d65c38fbad91c358f14da0eef2bd6"
    assert server_key("sha1", salted).hex() == "0fe09258b3ac852ba502cc62ba903eaacdbf7d31"


@pytest.mark.parametrize("mechanism", DIGESTS)
@pytest.mark.parametrize("user", ["alice", "a=b,c"])
async def test_another_client_logs_in(mechanism: str, user: str) -> None:
    given, client = server(mechanism), OtherClient([mechanism], user, "secret")
    client.set_server_first((await answer(given, client.get_client_first())).decode())
    client.set_server_final((await answer(given, client.get_client_final())).decode())
    assert (given.is_complete, given.user) == (True, user)


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_the_client_logs_in_to_another_server(mechanism: str) -> None:
    keys = KEYS[mechanism]
    known = {"a=b,c": (keys.salt, keys.stored_key, keys.server_key, keys.iterations)}
    other = OtherMechanism(mechanism).make_server(known.get)
    client = ScramClient(mechanism, "a=b,c", "secret")
    other.set_client_first(client.first().decode())
    final = client.evaluate(other.get_server_first().encode())
    assert final is not None
    other.set_client_final(final.decode())
    assert client.evaluate(other.get_server_final().encode()) is None


async def test_a_record_of_the_metadata_is_a_credential() -> None:
    keys = KEYS[SHA_256]
    record = UserScramCredentialRecord(
        "bob", TYPES[SHA_256], keys.salt, keys.stored_key, keys.server_key, keys.iterations
    )
    given = server(bob=record)
    await exchange(ScramClient(SHA_256, "bob", "secret"), given)
    assert given.user == "bob"


async def test_a_delegation_token_logs_its_owner_in() -> None:
    given = server()
    await exchange(ScramClient(SHA_256, "token-id", "aG1hYw==", by_token=True), given)
    assert (given.user, given.by_token, given.expires_ms) == ("o:wner", True, NOW_MS)


@pytest.mark.parametrize("value", ["true", "True"])
async def test_an_unknown_token_fails(value: str) -> None:
    failed = await failure(server(), f"n,,n=alice,r=x,tokenauth={value}")
    assert isinstance(failed, InvalidCredentials)
    assert failed.reason == "Token Authentication failed: Invalid tokenId : alice"


@pytest.mark.parametrize("extensions", [",tokenauth=false", ",foo=bar", ",X=a=b"])
async def test_other_extensions_are_signed_and_ignored(extensions: str) -> None:
    client, given = ScramClient(SHA_256, "alice", "secret"), server()
    client._bare += extensions
    await exchange(client, given)
    assert (given.user, given.by_token) == ("alice", False)


@pytest.mark.parametrize(("authzid", "user"), [("alice", "alice"), ("a=b,c", "a=b,c")])
async def test_an_authorization_id_is_compared_as_it_is_sent(authzid: str, user: str) -> None:
    first = f"n,a={sasl_name(authzid)},n={sasl_name(user)},r=x"
    if "=" not in user:
        assert (await answer(server(), first)).startswith(b"r=xserver,")
    else:  # Kafka does not decode =3D and =2C in the authorization id
        assert "authorization id" in str(await failure(server(), first))


async def test_another_authorization_id_fails_with_a_text_of_its_own() -> None:
    told = "Authentication failed: Client requested an authorization id that is different from username"
    assert str(await failure(server(), "n,a=bob,n=alice,r=x")) == told


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("n,,n=bob,r=x", "Authentication failed: Invalid user credentials"),
        ("n,,n=weak,r=x", f"Iterations 4095 is less than the minimum 4096 for {SHA_256}"),
        *(
            (first, "Invalid SCRAM client first message format")
            for first in (
                "",
                "y,,n=alice,r=x",
                "p=tls-unique,,n=alice,r=x",
                "n,n=alice,r=x",
                "n,,n=,r=x",
                "n,,n=alice,r=",
                "n,,n=alice",
                "n,,n=a=b,r=x",
                "n,,n=é,r=x",
                "n,,n=alice,r=x y",
                "n,,n=alice,r=x,tokenauth",
                "n,,n=alice,r=x,1=y",
                "n,,n=alice,r=x\n",
                b"n,,n=\xff,r=x",
                "n,," + "n=alice,r=" + "x" * 100_000 + ",",
            )
        ),
    ],
)
async def test_a_first_message_that_fails(first: str | bytes, reason: str) -> None:
    weak = KEYS[SHA_256]._replace(iterations=4095)
    failed = await failure(server(weak=weak), first)
    assert str(failed) == (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {SHA_256}"
    )
    assert failed.reason == reason
    assert not isinstance(failed, Unanswered)


def proof(letter: str) -> str:
    return f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={letter * 43}="


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (proof("A"), "Invalid client credentials"),
        (CLIENT_FINAL.replace("biws", "eSws"), "Invalid client credentials"),
        (CLIENT_FINAL.replace("%hv", "%hw"), "Invalid client nonce in the final client message."),
        (CLIENT_FINAL.replace("$k0", ""), "Invalid client nonce in the final client message."),
        (CLIENT_FINAL.replace("biws", "biw"), "Invalid SCRAM client final message format"),
        (CLIENT_FINAL + "é", "Invalid SCRAM client final message format"),
        ("c=biws", "Invalid SCRAM client final message format"),
        (b"\xff", "Invalid SCRAM client final message format"),
        ("", "Invalid SCRAM client final message format"),
    ],
)
async def test_a_final_message_that_fails(final: str | bytes, reason: str) -> None:
    given = of_rfc()
    failed = await failure(given, CLIENT_FIRST, final)
    assert isinstance(failed, InvalidCredentials)
    assert (failed.reason, failed.mechanism) == (reason, SHA_256)
    assert isinstance(await failure(given, CLIENT_FINAL), Unanswered), (
        "there is no second attempt in an exchange"
    )


@pytest.mark.parametrize("length", ["", "AAAA", "A" * 88])
async def test_a_proof_of_another_length_goes_unanswered(length: str) -> None:
    final = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={length}"
    assert isinstance(await failure(of_rfc(), CLIENT_FIRST, final), Unanswered)


async def test_an_extension_of_the_final_message_is_not_signed() -> None:
    given = of_rfc()
    await answer(given, CLIENT_FIRST)
    assert await answer(given, CLIENT_FINAL.replace(",p=", ",x=y,p=")) == SERVER_FINAL.encode()


async def test_a_final_message_cannot_be_replayed() -> None:
    keys = KEYS[SHA_256]
    heard, again = (ScramServer(SHA_256, {"alice": keys}.get, no_token) for _ in range(2))
    client = ScramClient(SHA_256, "alice", "secret")
    final = client.evaluate(await answer(heard, client.first()))
    assert final is not None
    await answer(heard, final)
    assert heard.is_complete
    assert (
        await failure(again, client.first(), final)
    ).reason == "Invalid client nonce in the final client message."


async def test_a_wrong_password_fails() -> None:
    given, client = server(), ScramClient(SHA_256, "alice", "wrong")
    final = client.evaluate(await answer(given, client.first()))
    assert final is not None
    assert (await failure(given, final)).reason == "Invalid client credentials"


PIECES = [
    "n",
    "=",
    ",",
    "a=",
    "r=x",
    "m=",
    "alice",
    "=2C",
    "c=biws",
    "r=xserver",
    "p=",
    "AAAA",
    "tokenauth=true",
    "é",
    "\0",
]
MESSAGES = st.binary() | st.lists(st.sampled_from(PIECES)).map(lambda pieces: "".join(pieces).encode())


@given(MESSAGES, MESSAGES)
async def test_garbage_fails_the_exchange(first: bytes, final: bytes) -> None:
    given, begun = server(), server()
    with contextlib.suppress(AuthenticationFailed):
        await answer(given, first)
    assert not given.is_complete
    await answer(begun, "n,,n=alice,r=x")
    with pytest.raises(AuthenticationFailed):
        await answer(begun, final)


@given(st.text())
def test_a_name_comes_back_from_its_message(user: str) -> None:
    assert user_of(sasl_name(user)) == user
    assert "," not in sasl_name(user)


def test_a_password_has_a_salt_of_its_own_each_time() -> None:
    first, second = credential("secret", SHA_256), credential("secret", SHA_256)
    assert isinstance(first, ScramKeys)
    assert first.salt != second.salt
    assert credential("secret", SHA_256, first.iterations, first.salt) == first


def test_a_nonce_is_long_and_in_letters() -> None:
    texts = {random_text() for _ in range(50)}
    assert len(texts) == 50
    assert all(len(text) * 4 >= 130 and text.isalnum() and text.isascii() for text in texts)
