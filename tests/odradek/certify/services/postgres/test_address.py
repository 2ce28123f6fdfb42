"""The DSN of the stage, and that of the job."""

from __future__ import annotations

import ssl

import pytest

from odradek.certify.services.postgres.address import Address, certificate_of_proxy


def test_the_job_gets_the_login_of_the_stage_and_the_address_of_the_proxy():
    address = Address.parse(
        "postgresql://app:p%40ss@db.example:6432/shop?application_name=till&connect_timeout=3"
    )
    assert (address.host, address.port, address.database) == ("db.example", 6432, "shop")
    assert address.values("postgres", 40123, "run_1") == {
        "postgres": "postgresql://app:p%40ss@127.0.0.1:40123/run_1?application_name=till&sslmode=disable",
        "postgres.jdbc": "jdbc:postgresql://127.0.0.1:40123/run_1?user=app&password=p%40ss",
        "postgres.host": "127.0.0.1",
        "postgres.port": "40123",
        "postgres.user": "app",
        "postgres.password": "p@ss",
        "postgres.database": "run_1",
    }


def test_a_job_has_tls_if_the_dsn_demands_it():
    values = Address.parse("host=db user=app sslmode=verify-full").values("postgres", 1, "app")
    assert values["postgres"] == "postgresql://app@127.0.0.1:1/app?sslmode=require&channel_binding=disable"
    assert values["postgres.jdbc"].endswith("&sslmode=require&channelBinding=disable")
    assert isinstance(certificate_of_proxy(), ssl.SSLContext)


@pytest.mark.parametrize(
    ("sslmode", "verifies", "checks_name"),
    [
        ("require", ssl.CERT_NONE, False),
        ("verify-ca", ssl.CERT_REQUIRED, False),
        ("verify-full", ssl.CERT_REQUIRED, True),
    ],
)
def test_the_certificate_of_the_server_is_verified_as_by_libpq(
    sslmode: str, verifies: ssl.VerifyMode, checks_name: bool
):
    context = Address.parse(f"host=db user=app sslmode={sslmode}").tls()
    assert (context.verify_mode, context.check_hostname) == (verifies, checks_name)


def test_a_directory_is_the_place_of_a_unix_socket():
    address = Address.parse("host=/run/postgresql user=app")
    assert (address.is_local, address.port, address.database) == (True, 5432, "app")


@pytest.mark.parametrize(
    ("dsn", "reason"),
    [
        ("postgresql://app@one,two/shop", "one host and one port"),
        ("postgresql://db.example/shop", "expected a user"),
        ("postgresql://app@db?surprise=1", "surprise"),
    ],
)
def test_an_invalid_dsn_is_refused_with_the_reason(dsn: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        Address.parse(dsn)
