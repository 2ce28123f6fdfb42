"""From settings to a client that authenticates with a signed token: keys in a file, and keys from an https endpoint."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from broker.security.sasl.mechanism import SaslServer
from broker.security.sasl.settings import sasl_settings
from broker.security.tls.authority import Authority
from tests.broker.security.sasl.issuer import jwk, jwks, signed
from tests.broker.security.sasl.world import (
    NO_JVM,
    NOW_S,
    OAUTH_MODULE,
    OAUTH_PACKAGE,
    answer,
    bearer,
    failure,
    listener,
    now_ms,
)

CLAIMS = {"sub": "alice", "exp": NOW_S + 60, "iat": NOW_S, "aud": ["broker"], "iss": "https://issuer"}
CENTURY_DAYS = 36_500


def server(url: str, options: str = "") -> SaslServer:
    configs = listener(
        sasl_enabled_mechanisms="OAUTHBEARER",
        oauthbearer_sasl_jaas_config=f"{OAUTH_MODULE} required {options};",
        oauthbearer_sasl_server_callback_handler_class=f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        oauthbearer_sasl_oauthbearer_jwks_endpoint_url=url,
        sasl_oauthbearer_expected_audience="broker,other",
        sasl_oauthbearer_expected_issuer="https://issuer",
    )

    async def no_token(token_id: str, mechanism: str) -> None:
        return None

    servers = sasl_settings(configs, NO_JVM).servers(lambda user, mechanism: None, no_token, now_ms)
    return servers["OAUTHBEARER"].server()


async def test_the_keys_are_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(jwk("ec")))
    given = server(path.as_uri())
    assert await answer(given, bearer(signed(CLAIMS), "alice")) == b""
    assert (given.user, given.expires_ms) == ("alice", (NOW_S + 60) * 1000)
    failed = await failure(server(path.as_uri()), bearer(signed({**CLAIMS, "aud": "else"})), b"\x01")
    assert str(failed) == '{"status":"invalid_token"}'


async def test_the_keys_are_behind_https(tmp_path: Path) -> None:
    authority = Authority.create(datetime(2024, 1, 1, tzinfo=UTC), days=CENTURY_DAYS)
    issued = authority.issue("localhost", ["127.0.0.1"], days=CENTURY_DAYS)
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem())
    (tmp_path / "server.pem").write_bytes(issued.key_pem() + issued.chain_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")

    async def respond(request: web.Request) -> web.Response:
        return web.Response(text=jwks(jwk("ec")))

    application = web.Application()
    application.router.add_get("/keys", respond)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/keys"
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{tmp_path / "ca.pem"}" unsecuredLoginStringClaim_sub="x"'
    try:
        given = server(url, trust)
        assert await answer(given, bearer(signed(CLAIMS))) == b""
        assert given.user == "alice"
        failed = await failure(server(url), bearer(signed(CLAIMS)), b"\x01")
        assert "suitable verification key" in failed.reason
    finally:
        await runner.cleanup()
