"""Settings of a listener that change at run time (KIP-226) apply to new connections, or are rejected."""

from __future__ import annotations

from pathlib import Path

from tests.differential.handshakes.scripts import Dialogue, settings
from tests.support import raw
from tests.support.listeners import listening

NAME = "listener.name.first.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_login_module_that_is_set_at_run_time_counts_from_then_on(tmp_path: Path) -> None:
    listeners = dict.fromkeys(("FIRST", "AGAIN", "SHORT"), "SASL_PLAINTEXT")
    with listening(listeners, settings(), tmp_path) as ports:
        assert login(ports["FIRST"], "carol", "new") == 58
        assert alter(ports["PLAINTEXT"], f'{MODULE} required user_carol="new";') == 0
        assert login(ports["FIRST"], "carol", "new") == 0
        assert login(ports["FIRST"], "alice", "alice-secret") == 58
        assert login(ports["AGAIN"], "alice", "alice-secret") == 0
        refused = alter(ports["PLAINTEXT"], f'{MODULE} user_carol="newer";')
        assert refused == 42, "INVALID_REQUEST, like Kafka for settings of brokers"
        assert login(ports["FIRST"], "carol", "new") == 0


def login(port: int, user: str, password: str) -> int:
    it = Dialogue(port)
    it.handshake()
    it.plain(user, password)
    it.close()
    return int(it.heard[-1]["sasl_authenticate"]["error_code"])


def alter(port: int, value: str) -> int:
    wire = raw.Wire("127.0.0.1", port)
    resource = {
        "resource_type": 4,
        "resource_name": "1",
        "configs": [{"name": NAME, "config_operation": 0, "value": value}],
    }
    body = {"resources": [resource], "validate_only": False}
    wire.send_frame(raw.encode_request("incremental_alter_configs", 1, body, 1))
    _, answer = raw.decode_response("incremental_alter_configs", 1, wire.receive_frame())
    wire.close()
    (told,) = answer["responses"]
    return int(told["error_code"])
