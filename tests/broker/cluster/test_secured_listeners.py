"""Which parts of a listener are rebuilt when settings change at run time."""

from __future__ import annotations

from typing import Any

from broker.cluster.secured_listeners import SecuredListeners
from broker.config import broker_config
from broker.config.dynamic import Layers, follow, with_dynamic
from tests.support.clock import FakeClock

JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_mechanisms_stay_where_other_settings_change() -> None:
    """A mechanism is rebuilt only if its own settings change, as it may have state, such as keys from a JWKS endpoint."""
    static = broker_config(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            JAAS: f'{MODULE} user_alice="secret";',
        }
    )
    config = broker_config()
    follow(config, static)
    metadata: Any = None
    secured = SecuredListeners(config, FakeClock(), lambda: metadata, has_peers=False)
    security = secured.by_name["SASL_PLAINTEXT"]

    def mechanisms_with(**own: str) -> object:
        follow(config, with_dynamic(static, Layers({}, own)))
        secured.reconfigure()
        return security.mechanisms

    first = security.mechanisms
    assert mechanisms_with(**{"log.retention.ms": "1000"}) is first
    changed = mechanisms_with(**{JAAS: f'{MODULE} user_bob="secret";'})
    assert changed is not first
    assert mechanisms_with(**{JAAS: f'{MODULE} user_bob="secret";', "log.retention.ms": "2"}) is changed
