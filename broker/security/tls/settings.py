"""The TLS settings of one listener, checked as ``SslFactory`` and ``DefaultSslEngineFactory`` do.

    settings = tls_settings(ListenerConfigs(config.values, "SSL"))

Files are not read here, but in `stores.py`. Settings that Odradek does not implement are refused. Pure.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Final

from broker.security.listener_configs import ListenerConfigs, no_such_class
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted
from storage.config_def import ConfigError

PEM: Final = "PEM"
FILE_TYPES: Final = ("JKS", "PKCS12")
# Values of ssl.protocol for which Java's own provider has an SSLContext.
_CONTEXTS: Final = ("TLS", "SSL", "TLSv1.3", "TLSv1.2", "TLSv1.1", "TLSv1", "SSLv3")
_PROTOCOLS: Final = ("TLSv1.3", "TLSv1.2", "TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello")
_ENGINE_FACTORY: Final = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
# For settings that Odradek does not implement: the values that describe what it does anyway. If empty, do not set it.
_OBEYED: Final[dict[str, tuple[str, ...]]] = {
    "ssl.engine.factory.class": (_ENGINE_FACTORY,),
    "ssl.provider": ("SunJSSE",),
    "security.providers": (),
    "ssl.secure.random.implementation": (),
    "ssl.keymanager.algorithm": ("SunX509", "NewSunX509", "PKIX"),
    "ssl.trustmanager.algorithm": ("PKIX", "SunPKIX", "X509", "X.509"),
}
_INVALID_CONFIGURATION: Final = "org.apache.kafka.common.errors.InvalidConfigurationException"
CONFIG_EXCEPTION: Final = "org.apache.kafka.common.config.ConfigException"
KAFKA_EXCEPTION: Final = "org.apache.kafka.common.KafkaException"


class TlsConfigError(ConfigError):
    """An invalid combination of settings, or an invalid store, for which Kafka fails to create an SSL engine."""

    def __init__(self, text: str, java_class: str = _INVALID_CONFIGURATION) -> None:
        super().__init__(text)
        self.java_class = java_class
        """Java class of the exception that Kafka throws here. It is part of Kafka's error for a change at run time."""


class StoreKind(NamedTuple):
    """A kind of store: key store or trust store. The settings of the two kinds differ only in their names."""

    prefix: str
    content: str
    """Name of the setting that contains certificates as PEM."""


KEY_STORE: Final = StoreKind("ssl.keystore", "ssl.keystore.certificate.chain")
TRUST_STORE: Final = StoreKind("ssl.truststore", "ssl.truststore.certificates")


@slotted(frozen=True)
class StoreSettings:
    """Settings of a key store or trust store: a file (``location``), or PEM in the settings themselves."""

    kind: StoreKind
    type: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    @property
    def is_pem(self) -> bool:
        return self.type == PEM


@slotted(frozen=True)
class TlsSettings:
    """TLS settings of one listener, or of the connections that a broker opens."""

    listener: str
    key_store: StoreSettings | None
    trust_store: StoreSettings | None
    client_auth: str
    """``ssl.client.auth``: `none`, `requested` or `required`."""
    protocol: str
    """``ssl.protocol``: the newest version that a client offers."""
    enabled_protocols: tuple[str, ...]
    """``ssl.enabled.protocols``; empty means all versions of TLS that Odradek supports."""
    cipher_suites: tuple[str, ...]
    """``ssl.cipher.suites``, by Java's names; empty means all suites that Java enables."""
    identifies_endpoint: bool
    """Whether a client compares the server's host name with its certificate."""
    principal_mapping_rules: str
    allow_dn_changes: bool
    allow_san_changes: bool

    def with_stores(self, other: TlsSettings) -> TlsSettings:
        """These settings with the stores of ``other``: only stores can change at run time
        (``SslConfigs.RECONFIGURABLE_CONFIGS``)."""
        return replace(self, key_store=other.key_store, trust_store=other.trust_store)


def tls_settings(configs: ListenerConfigs, *, sasl: bool = False) -> TlsSettings:
    """Read the settings. Raises `ConfigError` if Kafka refuses them, or Odradek does not implement them.

    With SASL, client certificates are requested only if ``ssl.client.auth`` is set for the listener (``ChannelBuilders``).
    """
    for name, obeyed in _OBEYED.items():
        _check_obeyed(name, configs.value(name), obeyed)
    return TlsSettings(
        listener=configs.listener,
        key_store=_key_store(configs),
        trust_store=_trust_store(configs),
        client_auth=_of_listener_only(configs) if sasl else configs.value("ssl.client.auth"),
        protocol=_context(configs.value("ssl.protocol")),
        enabled_protocols=_protocols(configs.value("ssl.enabled.protocols")),
        cipher_suites=configs.value("ssl.cipher.suites"),
        identifies_endpoint=_identifies(configs.value("ssl.endpoint.identification.algorithm")),
        principal_mapping_rules=configs.value("ssl.principal.mapping.rules"),
        allow_dn_changes=configs.value("ssl.allow.dn.changes"),
        allow_san_changes=configs.value("ssl.allow.san.changes"),
    )


def _check_obeyed(name: str, value: str | None, obeyed: tuple[str, ...]) -> None:
    if value is not None and value.lower() not in (each.lower() for each in obeyed):
        raise no_such_class(name, value, obeyed[:1])


def _of_listener_only(configs: ListenerConfigs) -> str:
    """``ssl.client.auth`` of the listener, or `none`: with SASL, the value for the whole broker does not apply."""
    return configs.of_mechanism("client.auth", "ssl") or "none"


def _context(protocol: str) -> str:
    if protocol not in _CONTEXTS:
        raise ConfigError.of("ssl.protocol", protocol, f"{protocol} SSLContext not available")
    return protocol


def _protocols(protocols: tuple[str, ...]) -> tuple[str, ...]:
    for each in protocols:
        if each not in _PROTOCOLS:
            raise ConfigError.of("ssl.enabled.protocols", each, f"Unsupported protocol {each}")
    return protocols


def _identifies(algorithm: str | None) -> bool:
    if algorithm and algorithm.upper() not in ("HTTPS", "LDAPS"):
        raise ConfigError.of(
            "ssl.endpoint.identification.algorithm",
            algorithm,
            f"Unknown identification algorithm: {algorithm}",
        )
    return bool(algorithm)


def _key_store(configs: ListenerConfigs) -> StoreSettings | None:
    store = StoreSettings(
        kind=KEY_STORE,
        type=configs.value("ssl.keystore.type"),
        location=configs.value("ssl.keystore.location"),
        password=configs.value("ssl.keystore.password"),
        certificates=configs.value("ssl.keystore.certificate.chain"),
        key=configs.value("ssl.keystore.key"),
        key_password=configs.value("ssl.key.password"),
    )
    if store.key is not None:
        _check_pem_key_store(store)
    elif store.certificates is not None:
        raise TlsConfigError("SSL certificate chain is specified, but private key is not specified")
    elif store.is_pem and store.location is not None:
        if store.password is not None:
            raise TlsConfigError(
                "SSL key store password cannot be specified with PEM format, only key password may be specified"
            )
    elif store.location is None:
        if store.password is not None:
            raise TlsConfigError("SSL key store is not specified, but key store password is specified.")
        return None
    elif store.password is None:
        raise TlsConfigError("SSL key store is specified, but key store password is not specified.")
    return _of_known_type(store)


def _check_pem_key_store(store: StoreSettings) -> None:
    if not store.is_pem:
        reason = f"SSL private key can be specified only for PEM, but key store type is {store.type}."
    elif store.certificates is None:
        reason = "SSL private key is specified, but certificate chain is not specified."
    elif store.location is not None:
        reason = "Both SSL key store location and separate private key are specified."
    elif store.password is not None:
        reason = (
            "SSL key store password cannot be specified with PEM format, only key password may be specified."
        )
    else:
        return
    raise TlsConfigError(reason)


def _trust_store(configs: ListenerConfigs) -> StoreSettings | None:
    store = StoreSettings(
        kind=TRUST_STORE,
        type=configs.value("ssl.truststore.type"),
        location=configs.value("ssl.truststore.location"),
        password=configs.value("ssl.truststore.password"),
        certificates=configs.value("ssl.truststore.certificates"),
    )
    if store.certificates is not None:
        _check_pem_trust_store(store)
    elif store.password is not None and store.is_pem and store.location is not None:
        raise TlsConfigError("SSL trust store password cannot be specified for PEM format.")
    elif store.location is None:
        if store.password is not None:
            raise TlsConfigError("SSL trust store is not specified, but trust store password is specified.")
        return None
    return _of_known_type(store)


def _check_pem_trust_store(store: StoreSettings) -> None:
    if not store.is_pem:
        reason = f"SSL trust store certs can be specified only for PEM, but trust store type is {store.type}."
    elif store.location is not None:
        reason = "Both SSL trust store location and separate trust certificates are specified."
    elif store.password is not None:
        reason = "SSL trust store password cannot be specified for PEM format."
    else:
        return
    raise TlsConfigError(reason)


def _of_known_type(store: StoreSettings) -> StoreSettings:
    """Return the store. Raises `ConfigError` for an unknown type.

    As in Kafka, JKS and PKCS12 are case-insensitive, and PEM must be in capitals.
    """
    if not store.is_pem and store.type.upper() not in FILE_TYPES:
        known = ", ".join((*FILE_TYPES, PEM))
        raise ConfigError.of(f"{store.kind.prefix}.type", store.type, f"String must be one of: {known}")
    return store
