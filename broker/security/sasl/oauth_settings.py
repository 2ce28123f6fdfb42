"""The OAUTHBEARER settings of one listener: the validator, and its requirements for a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from broker.config.definitions import kafka_configs
from broker.security.listener_configs import ListenerConfigs, no_such_class
from broker.security.sasl import unsecured_jws
from broker.security.sasl.jaas import JaasContext, Jvm
from broker.security.sasl.jwks import JwksEndpoint, JwksFile, KeySource, Refresh, fetch, location_of
from broker.security.sasl.jwt_validator import Expectations, JwtValidator
from broker.security.sasl.oauthbearer import MECHANISM, Validate
from broker.security.sasl.unsecured_jws import UnsecuredOptions, UnsecuredValidator
from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
JWT_VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
ISSUER: Final = "sasl.oauthbearer.expected.issuer"
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
_JWT_VALIDATORS: Final = (f"{_OAUTH}DefaultJwtValidator", f"{_OAUTH}BrokerJwtValidator")


class SecuredSettings(NamedTuple):
    url: str
    file: JwksFile | None
    refresh: Refresh
    expected: Expectations
    ssl_context: SSLContext | None
    """TLS context for an https endpoint, from the `ssl.*` options of the login module."""

    def __repr__(self) -> str:
        return f"SecuredSettings({location_of(self.url)}, {self.expected})"


class OAuthSettings(NamedTuple):
    settings: UnsecuredOptions | SecuredSettings
    warnings: tuple[str, ...] = ()

    def validator(self, now_ms: Callable[[], int]) -> Validate:
        if isinstance(self.settings, UnsecuredOptions):
            return UnsecuredValidator(self.settings, now_ms)
        # The validator's modules are imported with the first token, but a missing package should be reported at start.
        for package in ("jwt", "cryptography"):
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)
        url, file, refresh, expected, ssl_context = self.settings
        keys: KeySource = file or JwksEndpoint(
            location_of(url), partial(fetch, url, ssl_context), refresh, now_ms
        )
        return JwtValidator(expected, keys, now_ms)


def oauth_settings(
    configs: ListenerConfigs, context: JaasContext, jvm: Jvm, *, is_secured: bool
) -> OAuthSettings:
    options = context.modules[0].options
    # Kafka also logs in with the module at start, as a client of other brokers, and so refuses options that create no token.
    unsecured_jws.token(options, now_ms=0)
    if not is_secured:
        return OAuthSettings(unsecured_jws.validator_options(options))
    return _secured(_OAuthConfigs(configs), options, jvm)


class _OAuthConfigs:
    """Looks up settings of the mechanism, the listener and the broker, in this order (``ConfigurationUtils``)."""

    def __init__(self, configs: ListenerConfigs) -> None:
        self._configs = configs

    def text(self, name: str) -> str | None:
        value = self._configs.value(name, MECHANISM)
        return (value or "").strip() or None

    def needed(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise ConfigError(f"The OAuth configuration option {name} value is required")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        found: tuple[str, ...] = self._configs.value(name, MECHANISM)
        return found

    def flag(self, name: str) -> bool:
        found: bool = self._configs.value(name, MECHANISM)
        return found

    def number(self, name: str) -> int:
        found: int = self._configs.value(name, MECHANISM)
        return found


def _secured(configs: _OAuthConfigs, options: Mapping[str, str], jvm: Jvm) -> OAuthSettings:
    validator = configs.needed(JWT_VALIDATOR)
    if validator not in _JWT_VALIDATORS:
        raise no_such_class(JWT_VALIDATOR, validator, _JWT_VALIDATORS[:1])
    if configs.text(JWKS_URL) is None:
        raise ConfigError(
            f'The OAuth validator for the broker requires "{JWKS_URL}" to be configured so that JWT signatures can be '
            f'verified, but it was not set. Set "{JWKS_URL}" to the OAuth/OIDC provider\'s JWKS endpoint URL for this '
            f'listener, or configure a signature-verifying "{JWT_VALIDATOR}".'
        )
    expected = Expectations(
        audience=configs.texts(AUDIENCE),
        issuer=configs.text(ISSUER),
        clock_skew_s=configs.number("sasl.oauthbearer.clock.skew.seconds"),
        scope_claim=configs.needed("sasl.oauthbearer.scope.claim.name"),
        subject_claim=configs.needed("sasl.oauthbearer.sub.claim.name"),
    )
    warnings = [*_unverified(configs, expected)]
    url = _url(configs.needed(JWKS_URL), jvm, warnings)
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    secured = SecuredSettings(
        url,
        JwksFile(JWKS_URL, Path(parts.path)) if scheme == "file" else None,
        _refresh(configs),
        expected,
        _ssl_context(options) if scheme == "https" else None,
    )
    return OAuthSettings(secured, tuple(warnings))


class _Claim(NamedTuple):
    """A claim of a token that the broker verifies, unless a switch allows any value."""

    name: str
    short_name: str
    setting: str
    description: str
    """The value that the setting needs, in words."""
    switch: str


_CLAIMS: Final = (
    _Claim(
        "audience",
        "aud",
        AUDIENCE,
        "the audience(s) that identify this cluster",
        "sasl.oauthbearer.allow.unverified.audience",
    ),
    _Claim(
        "issuer",
        "iss",
        ISSUER,
        "the issuer URL of the OAuth/OIDC provider that signs the tokens",
        "sasl.oauthbearer.allow.unverified.issuer",
    ),
)


def _unverified(configs: _OAuthConfigs, expected: Expectations) -> Iterator[str]:
    """Yield a warning for each claim that is not verified. Raises `ConfigError` if no switch allows that."""
    for claim, value in zip(_CLAIMS, (expected.audience, expected.issuer), strict=True):
        if value:
            continue
        if not configs.flag(claim.switch):
            raise ConfigError(
                f'The OAuth validator for the broker requires "{claim.setting}" to be configured so that the token\'s '
                f'{claim.name} ("{claim.short_name}") claim can be verified, but it was not set. Set "{claim.setting}" '
                f'to {claim.description}, or set "{claim.switch}" to true to accept tokens regardless of their '
                f"{claim.name}."
            )
        yield f"{claim.setting} is not set: the broker accepts tokens of any {claim.name}"


def _ssl_context(options: Mapping[str, str]) -> SSLContext:
    from broker.security.tls.contexts import client_context
    from broker.security.tls.settings import tls_settings

    keys = kafka_configs()
    values = {name: key.default for name, key in keys.items()}
    given = {name: keys[name].parse(text) for name, text in options.items() if name in keys}
    return client_context(
        tls_settings(ListenerConfigs({**values, **given}, MECHANISM)), identifies_endpoint=True
    )


def _url(url: str, jvm: Jvm, warnings: list[str]) -> str:
    scheme, separator, _ = url.partition(":")
    try:
        shown = location_of(url)
    except ValueError as error:
        raise ConfigError(
            f"The OAuth configuration option {JWKS_URL} contains a URL that is malformed: {error}"
        ) from None
    if not separator:
        raise ConfigError(
            f"The OAuth configuration option {JWKS_URL} contains a URL ({url}) that is malformed: no protocol: {url}"
        )
    if scheme.lower() not in ("http", "https", "file"):
        raise ConfigError(
            f"The OAuth configuration option {JWKS_URL} contains a URL ({shown}) that contains an invalid protocol "
            f'({scheme}); only "http", "https", and "file" protocol are supported'
        )
    allowed = jvm.properties.get(ALLOWED_URLS)
    if allowed is None:
        warnings.append(
            f"{JWKS_URL} is {shown}: Apache Kafka would refuse it without -D{ALLOWED_URLS} in KAFKA_OPTS"
        )
    elif url not in (each.strip() for each in allowed.split(",")):
        raise ConfigError.of(
            JWKS_URL,
            shown,
            "The URL cannot be accessed due to restrictions. Update the system property "
            f"'{ALLOWED_URLS}' to allow the URL to be accessed.",
        )
    return url


def _refresh(configs: _OAuthConfigs) -> Refresh:
    prefix = "sasl.oauthbearer.jwks.endpoint"
    refresh_ms = configs.number(f"{prefix}.refresh.ms")
    if refresh_ms <= 0:
        raise ConfigError(
            "JWKS validation key refresh configuration value retryWaitMs value must be positive"
        )
    return Refresh(
        refresh_ms,
        configs.number(f"{prefix}.retry.backoff.ms"),
        configs.number(f"{prefix}.retry.backoff.max.ms"),
    )
