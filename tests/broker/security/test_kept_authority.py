"""The certificate authority of --tls is kept from one start to the next."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from broker.config.authority_files import STORE_PASSWORD, authority_files
from broker.security.kept_authority import keep_authority
from broker.security.tls.directory import PRIVATE
from broker.security.tls.settings import TRUST_STORE, StoreSettings
from broker.security.tls.stores import read_trust_store
from storage.config_def import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(each.value) for each in found]


def private_files(folder: Path) -> Iterator[int]:
    for path in folder.iterdir():
        if path.name not in (".lock", "ca.pem", "server.crt", "client.crt") and not path.name.startswith(
            "trust"
        ):
            yield path.stat().st_mode & 0o777


def test_it_is_made_for_the_names_of_the_broker_and_used_again(tmp_path: Path):
    folder = tmp_path / "data" / "tls"
    keep_authority(folder, ["kafka.example", "10.0.0.1", "0:0::1"], NOW)
    assert {"localhost", "127.0.0.1", "::1", "kafka.example", "10.0.0.1"} <= set(names(folder))
    assert len(names(folder)) == len(set(names(folder)))
    assert set(private_files(folder)) == {PRIVATE}
    before = content(folder)
    keep_authority(folder, ["10.0.0.1"], NOW + timedelta(days=1))
    assert content(folder) == before


def test_the_stores_of_java_open_with_the_password_that_the_start_tells(tmp_path: Path):
    keep_authority(tmp_path, [], NOW)
    ca, *stores = authority_files(tmp_path).values()
    certificate = x509.load_pem_x509_certificate(Path(ca).read_bytes())
    for path, kind in zip(stores, ("PKCS12", "JKS"), strict=True):
        (trusted,) = read_trust_store(StoreSettings(TRUST_STORE, kind, path, STORE_PASSWORD))
        assert x509.load_der_x509_certificate(trusted) == certificate


@pytest.mark.parametrize("why", ["a new name", "an old certificate", "an incomplete directory"])
def test_the_broker_gets_another_certificate_of_the_same_authority(tmp_path: Path, why: str):
    keep_authority(tmp_path, [], NOW)
    before = content(tmp_path)
    now, hosts = NOW, []
    if why == "a new name":
        hosts = ["kafka.example"]
    elif why == "an old certificate":
        now += timedelta(days=20 * 365)
    else:
        (tmp_path / "client.jks").unlink()
    keep_authority(tmp_path, hosts, now)
    after = content(tmp_path)
    assert (after["ca.pem"], after["ca.key"]) == (before["ca.pem"], before["ca.key"])
    assert after["server.pem"] != before["server.pem"]


def test_a_certificate_of_another_authority_is_not_used(tmp_path: Path):
    for name in ("ours", "other"):
        keep_authority(tmp_path / name, [], NOW)
    (tmp_path / "ours" / "server.pem").write_bytes((tmp_path / "other" / "server.pem").read_bytes())
    keep_authority(tmp_path / "ours", [], NOW)
    assert content(tmp_path / "ours")["server.pem"] != content(tmp_path / "other")["server.pem"]


@pytest.mark.parametrize("damage", ["no key", "no certificate", "a file"])
def test_what_cannot_be_used_is_refused(tmp_path: Path, damage: str):
    folder = tmp_path / "tls"
    if damage == "a file":
        folder.touch()
        expected = f"--tls: {folder}: File exists"
    else:
        keep_authority(folder, [], NOW)
        expected = f"--tls: the authority in {folder} cannot be reused"
        if damage == "no key":
            (folder / "ca.key").unlink()
        else:
            (folder / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigError) as error:
        keep_authority(folder, [], NOW)
    assert expected in str(error.value)
