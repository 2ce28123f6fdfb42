"""The certificate authority of --tls, whose certificates are for tests."""

import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509 import verification

from broker.security.tls.authority import Authority, local_hosts
from broker.security.tls.directory import PRIVATE, write_directory, write_file

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def test_a_certificate_names_each_host_once():
    issued = Authority.create(NOW).issue("localhost", ["localhost", "::1", "localhost", "10.0.0.7"])
    names = issued.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in names] == ["localhost", "::1", "10.0.0.7"]


def test_this_machine_has_several_names():
    assert {"localhost", "127.0.0.1", "::1", "broker-1"} < {*local_hosts("broker-1"), "any"}


def test_the_chain_is_verified_by_others(authority, server):
    """The certificate chain is valid according to an independent verifier, that of the package ``cryptography``."""
    store = verification.Store([x509.load_der_x509_certificate(authority.certificate)])
    builder = verification.PolicyBuilder().store(store).time(NOW + timedelta(days=1))
    chain = builder.build_server_verifier(x509.DNSName("localhost")).verify(server.chain[0], [])
    assert len(chain) == 2


def test_an_expired_certificate_of_a_valid_authority():
    authority = Authority.create(NOW)
    issued = authority.issue("localhost", days=-1).chain[0]
    assert issued.not_valid_before_utc < issued.not_valid_after_utc == NOW - timedelta(days=1)
    assert x509.load_der_x509_certificate(authority.certificate).not_valid_after_utc > NOW


def test_an_authority_that_was_kept_goes_on(authority):
    again = Authority.load(authority.key_pem(), authority.certificate_pem(), NOW)
    issued = again.issue("late")
    issued.chain[0].verify_directly_issued_by(x509.load_der_x509_certificate(authority.certificate))


def test_a_directory_has_all_that_a_broker_and_a_client_need(folder):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    private = {name for name, mode in modes.items() if mode == PRIVATE}
    assert private == {
        "ca.key",
        *(f"{side}.{ending}" for side in ("server", "client") for ending in ("key", "pem", "p12", "jks")),
    }
    assert set(modes) - private == {"ca.pem", "truststore.p12", "truststore.jks", "server.crt", "client.crt"}


def test_a_directory_may_be_written_again(tmp_path, authority, server, client):
    write_directory(tmp_path, authority, server, client, "one")
    (tmp_path / "server.key.new").write_text("of a process that was killed")
    write_directory(tmp_path, authority, client, server, "two")
    assert (tmp_path / "server.key").read_bytes() == client.key_pem()
    assert not list(tmp_path.glob("*.new"))


def test_a_file_is_never_readable_by_others(tmp_path):
    path = tmp_path / "key"
    path.write_text("readable by all")
    path.chmod(0o644)
    write_file(path, b"secret", PRIVATE)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"secret", PRIVATE)


def test_another_kind_of_key_is_no_authority(authority):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ValueError, match="the authority's key is not an EC key"):
        Authority.load(key, authority.certificate_pem(), NOW)
