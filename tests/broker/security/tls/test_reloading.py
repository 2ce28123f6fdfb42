"""Changed files and changed settings of a running TLS listener."""

import os

import pytest
import structlog

from broker.security.tls.authority import Authority
from broker.security.tls.contexts import handshake
from broker.security.tls.directory import PRIVATE, write_file
from broker.security.tls.reloading import ReloadableContext
from storage.config_def import ConfigError

CENTURY_DAYS = 36_500
FAILED = "Validation of dynamic config update of SSLFactory failed: org.apache.kafka.common.config.ConfigException: "


@pytest.fixture
def key_file(tmp_path, server):
    path = tmp_path / "server.pem"
    put(path, server)
    return path


def put(path, issued):
    write_file(path, issued.key_pem() + issued.chain_pem(), PRIVATE)


@pytest.fixture
def settings_of(configure, authority):
    """A function that makes the settings of a listener with a PEM key store, or without a key store if the path is None."""

    def settings(path, **given):
        stores = {
            "keystore_type": "PEM",
            "keystore_location": None if path is None else str(path),
            "truststore_type": "PEM",
            "truststore_certificates": authority.certificate_pem().decode(),
        }
        return configure(**stores | given)

    return settings


@pytest.fixture
def current(settings_of, key_file):
    return ReloadableContext(settings_of(key_file))


@pytest.fixture
def renewed(authority):
    return authority.issue("localhost", ["localhost", "127.0.0.1", "::1", "more"], days=CENTURY_DAYS)


def served(current):
    """The certificate that a client gets, in DER."""
    _, client = handshake(current.context, current.client_context, "localhost")
    return client.getpeercert(binary_form=True)


def test_a_new_file_is_served_to_the_next_client(current, key_file, renewed, server):
    assert not current.reload_if_changed()
    before = current.context
    put(key_file, renewed)
    with structlog.testing.capture_logs() as lines:
        assert current.reload_if_changed()
        assert not current.reload_if_changed()
    assert lines == [{"event": "key store and trust store reloaded", "listener": "SSL", "log_level": "info"}]
    assert current.context is not before
    assert served(current) == renewed.certificate


def test_a_broken_file_is_logged_once_and_the_old_certificate_stays(current, key_file, server, renewed):
    write_file(key_file, b"half a file", PRIVATE)
    with structlog.testing.capture_logs() as lines:
        assert not current.reload_if_changed()
        assert not current.reload_if_changed()
    (line,) = lines
    assert line["log_level"] == "warning"
    assert line["reason"].endswith("No matching PRIVATE KEY entries in PEM file")
    assert served(current) == server.certificate
    put(key_file, renewed)
    assert current.reload_if_changed()


def test_a_missing_file_is_logged_once_and_may_come_back(current, key_file, renewed):
    key_file.unlink()
    with structlog.testing.capture_logs() as lines:
        assert not current.reload_if_changed()
        assert not current.reload_if_changed()
    assert [line["log_level"] for line in lines] == ["warning"]
    put(key_file, renewed)
    assert current.reload_if_changed()


@pytest.mark.parametrize("what", ["time", "size", "file"])
def test_a_file_is_another_one_by_time_size_or_inode(current, key_file, what):
    found = os.stat(key_file)
    if what == "size":
        key_file.write_bytes(key_file.read_bytes() + b"\n")
    elif what == "file":
        write_file(key_file, key_file.read_bytes(), PRIVATE)
    moved_ns = 1_000_000 if what == "time" else 0
    os.utime(key_file, ns=(found.st_atime_ns, found.st_mtime_ns + moved_ns))
    assert current.reload_if_changed()


def test_new_settings(current, settings_of, tmp_path, renewed):
    other = tmp_path / "renewed.pem"
    put(other, renewed)
    settings = settings_of(other, client_auth="required")
    before = current.context
    current.check(settings)
    assert current.context is before
    current.change(settings)
    assert served(current) == renewed.certificate
    assert current.settings.client_auth == "none"
    assert not current.reload_if_changed()


def test_settings_that_are_the_same_change_nothing(current, settings_of, key_file):
    before = current.context
    current.change(settings_of(key_file))
    assert current.context is before


def test_the_same_settings_load_a_file_that_has_changed(current, settings_of, key_file, renewed):
    put(key_file, renewed)
    current.change(settings_of(key_file))
    assert served(current) == renewed.certificate


@pytest.mark.parametrize(
    ("subject", "hosts", "reason"),
    [
        (
            "CN=other",
            ["localhost", "127.0.0.1", "::1"],
            "Keystore DistinguishedName does not match:  existing={alias=kafka, DN=CN=localhost}, "
            "new={alias=kafka, DN=CN=other}",
        ),
        (
            "CN=LOCALHOST",
            ["localhost", "127.0.0.1"],
            "Keystore SubjectAltNames do not match:  existing={alias=kafka, SAN=[[2, localhost], [7, 127.0.0.1], "
            "[7, ::1]]}, new={alias=kafka, SAN=[[2, localhost], [7, 127.0.0.1]]}",
        ),
        (
            "localhost",
            [],
            "Keystore SubjectAltNames do not match:  existing={alias=kafka, SAN=[[2, localhost], [7, 127.0.0.1], "
            "[7, ::1]]}, new={alias=kafka, SAN=[]}",
        ),
    ],
)
def test_a_certificate_of_other_names_is_refused(
    current, settings_of, tmp_path, authority, server, subject, hosts, reason
):
    other = tmp_path / "other.pem"
    put(other, authority.issue(subject, hosts, days=CENTURY_DAYS))
    with pytest.raises(ConfigError) as refused:
        current.change(settings_of(other))
    assert str(refused.value) == FAILED + reason
    assert served(current) == server.certificate


@pytest.mark.parametrize(
    ("allowed", "subject", "hosts", "is_taken"),
    [
        ({"allow_dn_changes": True}, "other", ["localhost", "127.0.0.1", "::1"], True),
        ({"allow_dn_changes": True}, "other", ["localhost"], False),
        ({"allow_san_changes": True}, "localhost", ["localhost"], True),
        ({"allow_san_changes": True}, "other", ["localhost"], False),
        ({"allow_dn_changes": True, "allow_san_changes": True}, "other", ["localhost"], True),
    ],
)
def test_other_names_may_be_allowed(settings_of, key_file, authority, allowed, subject, hosts, is_taken):
    current = ReloadableContext(settings_of(key_file, **allowed))
    put(key_file, authority.issue(subject, hosts, days=CENTURY_DAYS))
    assert current.reload_if_changed() is is_taken


def test_a_key_store_is_not_removed(current, settings_of):
    with pytest.raises(ConfigError) as refused:
        current.check(settings_of(None))
    assert str(refused.value) == (
        f"{FAILED}Cannot remove the SSL keystore from an existing listener for which a keystore was configured."
    )


def test_a_trust_store_is_not_added(settings_of, key_file):
    current = ReloadableContext(settings_of(key_file, truststore_certificates=None))
    with pytest.raises(ConfigError) as refused:
        current.check(settings_of(key_file))
    assert str(refused.value) == (
        f"{FAILED}Cannot add SSL truststore to an existing listener for which no truststore was configured."
    )


def test_what_cannot_be_read_is_refused_in_kafkas_words(current, settings_of, tmp_path):
    missing = tmp_path / "missing.pem"
    with pytest.raises(ConfigError) as refused:
        current.check(settings_of(missing))
    assert str(refused.value) == (
        "Validation of dynamic config update of SSLFactory failed: "
        "org.apache.kafka.common.errors.InvalidConfigurationException: "
        f"Failed to load PEM SSL keystore {missing} (ssl.keystore.location): No such file or directory"
    )


def test_brokers_that_change_one_after_the_other_stay_connected(settings_of, key_file, authority, server):
    """A broker rejects a new certificate of another authority for the listener between brokers: brokers without the new
    settings could not connect any more."""
    current = ReloadableContext(settings_of(key_file), inter_broker=True)
    foreign = Authority.create(server.now, days=CENTURY_DAYS)
    put(key_file, foreign.issue("localhost", ["localhost", "127.0.0.1", "::1"], days=CENTURY_DAYS))
    trusting = settings_of(key_file, truststore_certificates=foreign.certificate_pem().decode())
    with pytest.raises(ConfigError, match=r"SSLFactory failed: javax\.net\.ssl\.SSLHandshakeException: "):
        current.check(trusting)
    ReloadableContext(settings_of(key_file)).change(trusting)


def test_connections_between_brokers_follow(settings_of, key_file, renewed):
    current = ReloadableContext(settings_of(key_file), inter_broker=True)
    before = current.client_context
    assert current.client_context is before
    put(key_file, renewed)
    assert current.reload_if_changed()
    assert current.client_context is not before
    handshake(current.context, current.client_context, "localhost")


def test_an_inter_broker_listener_that_does_not_trust_itself_does_not_start(settings_of, key_file, server):
    foreign = Authority.create(server.now, days=CENTURY_DAYS)
    settings = settings_of(key_file, truststore_certificates=foreign.certificate_pem().decode())
    with pytest.raises(
        ConfigError, match="A client SSLEngine created with the provided settings can't connect"
    ):
        ReloadableContext(settings, inter_broker=True)
    assert ReloadableContext(settings).context
