"""The options of a client: Kafka's names with the prefix ``kafka.``, as in Spark's connector."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from odradek.spark.wire.errors import BadSettings

PREFIX = "kafka."
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ENDPOINT_CHECKS = ("https", "")


def _setting(name: str, default: Any, *, secret: bool = False, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, repr=not secret, metadata={"name": name, "choices": choices})


@dataclass(frozen=True)
class ClientSettings:
    """The address of a cluster and the client's settings, with Kafka's defaults unless a comment gives a reason.

    Instances are pickled for executors. Their repr contains no secrets.
    """

    bootstrap_servers: str = _setting("bootstrap.servers", "")
    client_id: str = _setting("client.id", "odradek-spark")
    security_protocol: str = _setting("security.protocol", "PLAINTEXT", choices=PROTOCOLS)
    sasl_mechanism: str = _setting("sasl.mechanism", "GSSAPI", choices=("GSSAPI", *MECHANISMS))
    sasl_jaas_config: str = _setting("sasl.jaas.config", "", secret=True)
    # Kafka has no such name: its clients get tokens from a callback class.
    sasl_oauthbearer_token: str = _setting("sasl.oauthbearer.token", "", secret=True)
    ssl_truststore_type: str = _setting("ssl.truststore.type", "JKS", choices=("JKS", "PKCS12", "PEM"))
    ssl_truststore_location: str = _setting("ssl.truststore.location", "")
    ssl_truststore_certificates: str = _setting("ssl.truststore.certificates", "", secret=True)
    ssl_keystore_type: str = _setting("ssl.keystore.type", "JKS", choices=("JKS", "PKCS12", "PEM"))
    ssl_keystore_location: str = _setting("ssl.keystore.location", "")
    ssl_keystore_key: str = _setting("ssl.keystore.key", "", secret=True)
    ssl_keystore_certificate_chain: str = _setting("ssl.keystore.certificate.chain", "", secret=True)
    ssl_key_password: str = _setting("ssl.key.password", "", secret=True)
    ssl_endpoint_identification_algorithm: str = _setting(
        "ssl.endpoint.identification.algorithm", "https", choices=ENDPOINT_CHECKS
    )
    request_timeout_ms: int = _setting("request.timeout.ms", 30_000)
    delivery_timeout_ms: int = _setting("delivery.timeout.ms", 120_000)
    max_block_ms: int = _setting("max.block.ms", 60_000)
    metadata_max_age_ms: int = _setting("metadata.max.age.ms", 300_000)
    socket_connection_setup_timeout_ms: int = _setting("socket.connection.setup.timeout.ms", 10_000)
    reconnect_backoff_ms: int = _setting("reconnect.backoff.ms", 50)
    reconnect_backoff_max_ms: int = _setting("reconnect.backoff.max.ms", 1_000)
    retry_backoff_ms: int = _setting("retry.backoff.ms", 100)
    retry_backoff_max_ms: int = _setting("retry.backoff.max.ms", 1_000)
    compression_type: str = _setting("compression.type", "none", choices=COMPRESSIONS)
    # Kafka's default of 16 KiB is for single records that arrive one after the other; here thousands of rows arrive at once.
    batch_size_bytes: int = _setting("batch.size", 256 * 1024)
    max_request_size_bytes: int = _setting("max.request.size", 1024 * 1024)
    buffer_memory_bytes: int = _setting("buffer.memory", 32 * 1024 * 1024)

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ClientSettings:
        """Read the settings from the options of a data source. Raises ``BadSettings`` if an option has an invalid value.

        Options without ``kafka.`` are ignored. An unknown option with ``kafka.`` is ignored with a warning."""
        given = {
            name.lower().removeprefix(PREFIX): value
            for name, value in options.items()
            if name.lower().startswith(PREFIX)
        }
        known = {each.metadata["name"]: each for each in fields(cls)}
        unknown = sorted(given.keys() - known.keys())
        if unknown:
            names = ", ".join(PREFIX + name for name in unknown)
            warnings.warn(f"unknown options of the Kafka client are ignored: {names}", stacklevel=2)
        values: dict[str, Any] = {
            each.name: _read(name, given[name], each) for name, each in known.items() if name in given
        }
        return cls(**values)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers.strip():
            raise BadSettings(
                "INVALID_CONFIG",
                "kafka.bootstrap.servers is missing: set it to host:port, several separated by commas",
            )


def _read(name: str, text: str, known: Any) -> str | int:
    if known.type == "int":
        try:
            number = int(text)
        except ValueError:
            raise BadSettings(
                "INVALID_CONFIG", f"kafka.{name} must be a whole number, not {text!r}"
            ) from None
        if number <= 0:
            raise BadSettings("INVALID_CONFIG", f"kafka.{name} must be above 0, not {number}")
        return number
    choices: tuple[str, ...] = known.metadata["choices"]
    if not choices:
        return text
    for choice in choices:
        if text.strip().lower() == choice.lower():
            return choice
    raise BadSettings("INVALID_CONFIG", f"kafka.{name} must be one of {', '.join(choices)}, not {text!r}")
