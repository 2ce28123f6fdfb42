"""The SASL settings of one listener, checked as ``SaslChannelBuilder`` and ``LoginManager`` do.

    settings = sasl_settings(ListenerConfigs(config.values, "SASL_PLAINTEXT"), read_jvm(os.environ))
    mechanisms = settings.servers(find_user, find_token, clock.now_ms)

Java classes that Odradek does not implement are refused by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.security.listener_configs import ListenerConfigs, no_such_class
from broker.security.sasl import jaas
from broker.security.sasl.authenticator import Mechanism, Mechanisms
from broker.security.sasl.jaas import JaasContext, Jvm, server_context
from broker.security.sasl.mechanism import SaslServer
from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError

if TYPE_CHECKING:
    from broker.metadata.token_control import TokenCredential
    from broker.security.sasl.oauth_settings import OAuthSettings
    from broker.security.sasl.scram import ScramCredential

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
LOGIN_MODULES: Final = {
    PLAIN: jaas.PLAIN_LOGIN_MODULE,
    "SCRAM-SHA-256": jaas.SCRAM_LOGIN_MODULE,
    "SCRAM-SHA-512": jaas.SCRAM_LOGIN_MODULE,
    OAUTHBEARER: jaas.OAUTHBEARER_LOGIN_MODULE,
}
ENABLED: Final = "sasl.enabled.mechanisms"
INTER_BROKER: Final = "sasl.mechanism.inter.broker.protocol"
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
LOGIN: Final = "sasl.login.class"
ALLOWED_MODULES: Final = "org.apache.kafka.allowed.login.modules"

_SECURITY: Final = "org.apache.kafka.common.security."
_OAUTH: Final = f"{_SECURITY}oauthbearer."
SECURED_VALIDATOR: Final = f"{_OAUTH}OAuthBearerValidatorCallbackHandler"
_UNSECURED_LOGIN: Final = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
# Class names that settings may have, by mechanism, because Odradek behaves like these classes.
_CLASSES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    SERVER_HANDLER: {
        PLAIN: (f"{_SECURITY}plain.internals.PlainServerCallbackHandler",),
        OAUTHBEARER: (
            f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
            SECURED_VALIDATOR,
        ),
    },
    LOGIN_HANDLER: {OAUTHBEARER: (_UNSECURED_LOGIN,)},
    LOGIN: dict.fromkeys(LOGIN_MODULES, (f"{_SECURITY}authenticator.DefaultLogin",)),
}

FindUser = Callable[[str, str], "ScramCredential | None"]
"""Returns the SCRAM credential of a user, by name and mechanism."""
FindToken = Callable[[str, str], "Awaitable[TokenCredential | None]"]
"""Returns the credential of a delegation token, by id and mechanism."""


class MechanismSettings(NamedTuple):
    name: str
    context: JaasContext
    reauth_ms_max: int
    oauth: OAuthSettings | None


class SaslSettings(NamedTuple):
    listener: str
    mechanisms: tuple[MechanismSettings, ...]
    receive_size_max: int
    """``sasl.server.max.receive.size``"""
    warnings: tuple[str, ...]

    def servers(self, find_user: FindUser, find_token: FindToken, now_ms: Callable[[], int]) -> Mechanisms:
        """The enabled mechanisms by name, in the order of Kafka's SaslHandshake response."""
        return {
            each.name: Mechanism(each.name, _server(each, find_user, find_token, now_ms), each.reauth_ms_max)
            for each in self.mechanisms
        }


def sasl_settings(configs: ListenerConfigs, jvm: Jvm) -> SaslSettings:
    """Read the settings. Raises ConfigError if Kafka refuses them, or Odradek does not implement them."""
    enabled: Sequence[str] = configs.value(ENABLED)
    if not enabled:
        raise ConfigError("No SASL mechanisms are enabled")
    for mechanism in enabled:
        _check_known(configs, mechanism)
    mechanisms = {each: _mechanism(configs, each, jvm) for each in enabled}
    return SaslSettings(
        listener=configs.listener,
        mechanisms=tuple(mechanisms[each] for each in in_order_of_hash_set(enabled)),
        receive_size_max=configs.value("sasl.server.max.receive.size"),
        warnings=tuple(dict.fromkeys(_warnings(configs, tuple(mechanisms.values()), jvm))),
    )


def check_inter_broker(configs: ListenerConfigs) -> None:
    """Check a SASL listener on which brokers connect to each other (``KafkaConfig.validateValues``)."""
    if configs.value(INTER_BROKER) not in configs.value(ENABLED):
        raise ConfigError(
            f"requirement failed: {INTER_BROKER} must be included in {ENABLED} "
            "when SASL is used for inter-broker communication"
        )


def in_order_of_hash_set(names: Sequence[str]) -> list[str]:
    """Order of a few strings in Java's ``HashSet``, in which SaslHandshake lists the mechanisms.

    >>> in_order_of_hash_set(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
    ['PLAIN', 'SCRAM-SHA-512', 'SCRAM-SHA-256', 'OAUTHBEARER']
    """
    return sorted(names, key=lambda name: (_java_hash(name) ^ _java_hash(name) >> 16) & 15)


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value


def _check_known(configs: ListenerConfigs, mechanism: str) -> None:
    if mechanism == "GSSAPI":
        raise ConfigError(
            f"Listener {configs.listener} enables the SASL mechanism GSSAPI, which is Kafka's default: Odradek has no "
            f"Kerberos. Set {configs.prefix}{ENABLED} to some of {', '.join(LOGIN_MODULES)}"
        )
    if mechanism not in LOGIN_MODULES:
        raise ConfigError.of(ENABLED, mechanism, f"Odradek supports {', '.join(LOGIN_MODULES)}")


def _mechanism(configs: ListenerConfigs, mechanism: str, jvm: Jvm) -> MechanismSettings:
    context = server_context(configs, mechanism, jvm)
    _check_modules(context, mechanism, jvm)
    for name, known in _CLASSES.items():
        _check_class(configs, name, mechanism, known.get(mechanism, ()))
    oauth = None
    if mechanism == OAUTHBEARER:
        from broker.security.sasl.oauth_settings import oauth_settings

        is_secured = configs.of_mechanism(SERVER_HANDLER, mechanism) == SECURED_VALIDATOR
        oauth = oauth_settings(configs, context, jvm, is_secured=is_secured)
    reauth_ms = configs.value("connections.max.reauth.ms", mechanism)
    return MechanismSettings(mechanism, context, max(reauth_ms, 0), oauth)


def _check_modules(context: JaasContext, mechanism: str, jvm: Jvm) -> None:
    needed, names = LOGIN_MODULES[mechanism], [each.name for each in context.modules]
    allowed = jvm.properties.get(ALLOWED_MODULES)
    for name in names:
        if allowed is not None and name not in (each.strip() for each in allowed.split(",")):
            shown = jaas.shown_name(name)
            raise ConfigError(
                f"{shown} is not allowed. Update System property '{ALLOWED_MODULES}' to allow {shown}"
            )
        if name not in LOGIN_MODULES.values():
            known = ", ".join(dict.fromkeys(LOGIN_MODULES.values()))
            raise ConfigError(
                f"The JAAS context {context.name} has the login module {jaas.shown_name(name)}: "
                f"Odradek supports {known}"
            )
    if needed not in names:
        shown = ", ".join(names)
        raise ConfigError(f"The SASL mechanism {mechanism} needs the login module {needed}, not {shown}")
    if mechanism == OAUTHBEARER and len(names) != 1:
        raise ConfigError(
            f"Must supply exactly 1 non-null JAAS mechanism configuration (size was {len(names)})"
        )


def _check_class(configs: ListenerConfigs, name: str, mechanism: str, known: tuple[str, ...]) -> None:
    value = configs.of_mechanism(name, mechanism)
    if value is not None and value not in known:
        raise no_such_class(f"{configs.prefix}{mechanism.lower()}.{name}", value, known)


def _warnings(configs: ListenerConfigs, mechanisms: Sequence[MechanismSettings], jvm: Jvm) -> Iterator[str]:
    for each in mechanisms:
        if configs.value("sasl.jaas.config") and not configs.of_mechanism("sasl.jaas.config", each.name):
            yield "Server config sasl.jaas.config should be prefixed with SASL mechanism name, ignoring config"
        if each.oauth is not None:
            yield from each.oauth.warnings
    for name in _CLASSES:
        if configs.value(name):
            yield f"Server config {name} should be prefixed with SASL mechanism name, ignoring config"


def _server(
    settings: MechanismSettings, find_user: FindUser, find_token: FindToken, now_ms: Callable[[], int]
) -> Callable[[], SaslServer]:
    """Return a function that creates the server side of an exchange. Imports only enabled mechanisms."""
    mechanism = settings.name
    if mechanism == PLAIN:
        from broker.security.sasl.plain import PlainServer, PlainUsers

        return partial(PlainServer, PlainUsers(settings.context))
    if settings.oauth is not None:
        from broker.security.sasl.oauthbearer import OAuthBearerServer

        return partial(OAuthBearerServer, settings.oauth.validator(now_ms))
    from broker.security.sasl.scram import ScramServer

    return partial(
        ScramServer,
        mechanism,
        lambda user: find_user(user, mechanism),
        lambda token_id: find_token(token_id, mechanism),
    )
