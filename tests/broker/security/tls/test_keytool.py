"""Java's ``keytool`` lists each key store that we write."""

import subprocess

import pytest

from odradek.spark.jars import locked
from tests.support.deadlines import HANG_S
from tests.support.java import SHORT_LIVED, java
from tests.support.javaprog import CACHE

pytestmark = pytest.mark.java


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("server.jks", ["Keystore type: JKS", "Entry type: PrivateKeyEntry", "Certificate chain length: 2"]),
        (
            "server.p12",
            ["Keystore type: PKCS12", "Entry type: PrivateKeyEntry", "Certificate chain length: 2"],
        ),
        ("truststore.jks", ["Keystore type: JKS", "Entry type: trustedCertEntry", "Owner: CN=Odradek CA"]),
        ("truststore.p12", ["Keystore type: PKCS12", "Entry type: trustedCertEntry", "Owner: CN=Odradek CA"]),
    ],
)
def test_keytool_lists_the_store(folder, file, said):
    lines = keytool("-list", "-v", "-keystore", str(folder / file), "-storepass", "changeit")
    assert [each for each in said if each not in lines] == []
    assert "Your keystore contains 1 entry" in lines


def test_keytool_decrypts_the_private_key_of_a_jks_key_store(folder, tmp_path):
    target = str(tmp_path / "converted.p12")
    source = ("-srckeystore", str(folder / "client.jks"), "-srcstorepass", "changeit")
    lines = keytool("-importkeystore", *source, "-destkeystore", target, "-deststorepass", "changeit")
    assert any("1 entries successfully imported" in line for line in lines)


def keytool(*arguments):
    command = [java(), *SHORT_LIVED, "-Duser.language=en", "-m", "java.base/sun.security.tools.keytool.Main"]
    with locked(CACHE / "working"):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return (done.stdout + done.stderr).splitlines()
