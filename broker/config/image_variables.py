"""Environment variables that the start scripts of other images convert to settings before Kafka starts.

apache/kafka and confluentinc/cp-kafka: ``KAFKA_SSL_KEYSTORE_FILENAME`` and similar variables refer to files in
/etc/kafka/secrets. bitnami/kafka: ``KAFKA_CFG_NUM_PARTITIONS`` sets num.partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError

SECRETS: Final = Path("/etc/kafka/secrets")
BITNAMI_PREFIX: Final = "KAFKA_CFG_"

# The setting, the variable, and whether the file's content is the value. The order is that of the start scripts.
_KEY_STORE: Final = (
    ("ssl.keystore.location", "KAFKA_SSL_KEYSTORE_FILENAME", False),
    ("ssl.key.password", "KAFKA_SSL_KEY_CREDENTIALS", True),
    ("ssl.keystore.password", "KAFKA_SSL_KEYSTORE_CREDENTIALS", True),
)
_TRUST_STORE: Final = (
    ("ssl.truststore.location", "KAFKA_SSL_TRUSTSTORE_FILENAME", False),
    ("ssl.truststore.password", "KAFKA_SSL_TRUSTSTORE_CREDENTIALS", True),
)
_CLIENT_AUTH: Final = re.compile("required|requested")


class Secret(NamedTuple):
    """A setting whose value comes from a file in the directory of secrets of the images (/etc/kafka/secrets)."""

    name: str
    value: str
    variable: str

    def __repr__(self) -> str:
        return f"Secret({self.name} from {self.variable})"


def secrets_of(environ: Mapping[str, str], folder: Path = SECRETS) -> Iterator[Secret]:
    """Yield the settings that the start scripts derive if a listener is advertised as `SSL://` or `SASL_SSL://`.

    The trust store is read only if client certificates are requested. Raises `ConfigError` for a missing file.
    """
    if "SSL://" not in environ.get("KAFKA_ADVERTISED_LISTENERS", ""):
        return
    asks_clients = _CLIENT_AUTH.search(environ.get("KAFKA_SSL_CLIENT_AUTH", ""))
    for name, variable, is_content in (*_KEY_STORE, *(_TRUST_STORE if asks_clients else ())):
        if file := environ.get(variable):
            yield Secret(name, _value(variable, folder / file, is_content), variable)


def _value(variable: str, path: Path, is_content: bool) -> str:
    try:
        # As `$(cat FILE)` in a shell: without the line feed at the end.
        if is_content:
            return path.read_text("utf-8").rstrip("\n")
        path.stat()
    except OSError as error:
        raise ConfigError(f"{variable}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{variable}: {path}: not a UTF-8 text file") from None
    return str(path)


def bitnami_name(variable: str) -> str:
    """Return the setting of a bitnami variable: underscores become dots, except in the names of two security protocols.

    >>> bitnami_name("KAFKA_CFG_LISTENER_NAME_SASL_SSL_PLAIN_SASL_JAAS_CONFIG")
    'listener.name.sasl_ssl.plain.sasl.jaas.config'
    """
    name = variable.removeprefix(BITNAMI_PREFIX).lower().replace("_", ".")
    return name.replace("sasl.ssl", "sasl_ssl").replace("sasl.plaintext", "sasl_plaintext")
