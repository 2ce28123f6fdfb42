"""Creates the TLS and SASL listeners of a node from its settings, and the connections between nodes on them.

Settings that cannot be used raise `ConfigError` before a port is bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.net.listener_security import ListenerSecurity
from broker.security.listener_configs import ListenerConfigs

if TYPE_CHECKING:
    from broker.config import BrokerConfig, Endpoint
    from broker.metadata import ClusterMetadata
    from broker.metadata.token_control import TokenCredential
    from broker.peers.channel import Connect
    from broker.security.sasl.jaas import Jvm
    from broker.security.sasl.scram import ScramCredential
    from broker.security.sasl.settings import SaslSettings
    from broker.security.tls.reloading import ReloadableContext
    from broker.security.tls.settings import TlsSettings
    from storage.config_def import Value


class SecuredListeners:
    """Secured listeners of one node. ``metadata`` returns the cluster metadata, in which each login looks up SCRAM
    credentials and delegation tokens.
    """

    def __init__(
        self, config: BrokerConfig, clock: Clock, metadata: Callable[[], ClusterMetadata], *, has_peers: bool
    ) -> None:
        """With ``has_peers``, the node also logs in to other nodes, on the inter-broker listener."""
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._has_peers = has_peers
        self._tls: dict[str, ReloadableContext] = {}
        self._sasl: dict[str, SaslSettings] = {}
        self._settings_of_sasl = _settings_of_sasl(config)
        self._jvm = self._read_jvm()
        self.by_name: Mapping[str, ListenerSecurity] = {
            each.name: self._security(each)
            for each in config.listeners
            if each.security_protocol != "PLAINTEXT"
        }
        if has_peers and config.inter_broker_listener_name in self._sasl:
            from broker.security.sasl.clients import client_settings
            from broker.security.sasl.settings import check_inter_broker

            configs = ListenerConfigs(config.values, config.inter_broker_listener_name)
            check_inter_broker(configs)
            self._login = client_settings(configs, self._jvm)

    @property
    def warnings(self) -> Iterator[str]:
        for each in self._sasl.values():
            yield from each.warnings

    def _read_jvm(self) -> Jvm:
        from broker.security.sasl.jaas import read_jvm

        return read_jvm(os.environ)

    def _security(self, endpoint: Endpoint) -> ListenerSecurity:
        name, protocol = endpoint.name, endpoint.security_protocol
        security = ListenerSecurity(
            self._clock, failure_delay_ms=self._config.connection_failed_authentication_delay_ms
        )
        if protocol.startswith("SASL_"):
            self._add_sasl(name, security)
        if protocol.endswith("SSL"):
            self._add_tls(name, security)
        return security

    def _add_sasl(self, name: str, security: ListenerSecurity) -> None:
        settings = self._sasl[name] = self._sasl_settings(name)
        security.mechanisms = settings.servers(self._user, self._token, self._now_ms)
        security.token_bytes_max = settings.receive_size_max

    def _add_tls(self, name: str, security: ListenerSecurity) -> None:
        from broker.security.tls.ageing import AgeingContext
        from broker.security.tls.principal_mapping import parse_rules, principal_of
        from broker.security.tls.reloading import ReloadableContext

        settings = self._tls_settings(name)
        is_for_brokers = self._has_peers and name == self._config.inter_broker_listener_name
        context = self._tls[name] = ReloadableContext(settings, inter_broker=is_for_brokers)
        security.tls = AgeingContext(context, self._clock)
        security.principal_of = partial(principal_of, rules=parse_rules(settings.principal_mapping_rules))

    def _sasl_settings(self, name: str, config: BrokerConfig | None = None) -> SaslSettings:
        from broker.security.sasl.settings import sasl_settings

        return sasl_settings(ListenerConfigs((config or self._config).values, name), self._jvm)

    def _tls_settings(self, name: str, config: BrokerConfig | None = None) -> TlsSettings:
        from broker.security.tls.settings import tls_settings

        configs = ListenerConfigs((config or self._config).values, name)
        return tls_settings(configs, sasl=name in self._sasl)

    # -- credentials ---------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._clock.now_ms(Domain.CONNECTIONS)

    def _user(self, user: str, mechanism: str) -> ScramCredential | None:
        from broker.metadata.scram_credentials import TYPES

        return self._metadata().image.credentials.get((user, TYPES[mechanism]))

    async def _token(self, token_id: str, mechanism: str) -> TokenCredential | None:
        return await self._metadata().token_control.credential(token_id, mechanism)

    # -- connections to other nodes, changes at run time ---------------------------------------------------------

    def connect(self) -> Connect | None:
        """Function by which this node connects to other nodes; None means plain TCP."""
        name = self._config.inter_broker_listener_name
        tls = self._tls.get(name)
        if tls is None and name not in self._sasl:
            return None
        from broker.peers.secured import secured
        from broker.security.sasl.clients import sasl_client

        return secured(
            tls=None if tls is None else lambda: tls.client_context,
            login=(lambda: sasl_client(self._login, self._now_ms)) if name in self._sasl else None,
        )

    def check(self, config: BrokerConfig) -> None:
        """Raise `ConfigError` if the listeners cannot change to the stores, mechanisms and login modules of ``config``."""
        for name in self._sasl:
            self._sasl_settings(name, config)
        for name, context in self._tls.items():
            context.check(self._tls_settings(name, config))

    def reconfigure(self) -> None:
        """Apply changed stores, mechanisms and login modules (KIP-226) to connections from now on."""
        settings = _settings_of_sasl(self._config)
        if settings != self._settings_of_sasl:  # otherwise a cached JWKS would be fetched again
            self._settings_of_sasl = settings
            for name in self._sasl:
                self._add_sasl(name, self.by_name[name])
        for name, context in self._tls.items():
            context.change(self._tls_settings(name))


def _settings_of_sasl(config: BrokerConfig) -> dict[str, Value]:
    """The SASL settings of the broker and of all listeners."""
    return {name: value for name, value in config.values.items() if "sasl." in name}
