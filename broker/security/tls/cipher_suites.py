"""``ssl.cipher.suites``: translation of the IANA names that Java uses to OpenSSL's names.

    openssl_names(["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"])  # ["ECDHE-RSA-AES256-GCM-SHA384"]

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from storage.config_def import ConfigError

SETTING: Final = "ssl.cipher.suites"
TLS13: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"})
"""Cipher suites of TLS 1.3, which have the same names in OpenSSL."""
_SIGNALLING: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
TLS12: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384": "DHE-DSS-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256": "DHE-DSS-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA256": "DHE-DSS-AES256-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA256": "DHE-DSS-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_DHE_DSS_WITH_AES_256_CBC_SHA": "DHE-DSS-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_DHE_DSS_WITH_AES_128_CBC_SHA": "DHE-DSS-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
"""Cipher suites of TLS 1.2 that Java 17 enables, in its order, with OpenSSL's names."""
# Suites that Java knows and `jdk.tls.disabledAlgorithms` disables: a list may contain them, but no connection uses them.
_DISABLED: Final = re.compile(
    r"(TLS|SSL)_(?=.*_WITH_)(ECDH_\w+|\w*anon_\w+|\w*KRB5_\w+|\w*EXPORT_\w+"
    r"|(ECDHE|DHE|RSA|DH)\w*_WITH_(NULL|RC4|RC2|DES|3DES)\w*)"
)


def check(suites: Iterable[str]) -> None:
    """Raise `ConfigError` for the first name of a cipher suite that Java does not know."""
    for each in suites:
        if each not in TLS12 and each not in TLS13 and each != _SIGNALLING and not _DISABLED.fullmatch(each):
            raise ConfigError.of(SETTING, each, f"Unsupported CipherSuite: {each}")


def openssl_names(suites: Iterable[str]) -> list[str]:
    """OpenSSL's names of the TLS 1.2 suites in ``suites``; if ``suites`` is empty, of all suites that Java enables."""
    given = list(suites)
    return [TLS12[each] for each in given if each in TLS12] if given else list(TLS12.values())


def of_tls13(suites: Iterable[str]) -> frozenset[str]:
    """The TLS 1.3 suites in ``suites``; all three suites of TLS 1.3 if ``suites`` is empty."""
    given = frozenset(suites)
    return given & TLS13 if given else TLS13
