"""Quotas by principal: two users on one listener, and a quota for one of them (KIP-599, KIP-55)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.differential.handshakes.scripts import Dialogue, settings
from tests.support import raw
from tests.support.listeners import listening

RATE: Final = 0.01
"""Quota of created partitions a second (``controller_mutation_rate``). After the first partition the token bucket is
below zero, so another creation is refused."""
THROTTLING_QUOTA_EXCEEDED: Final = 89


def create(it: Dialogue, topic: str) -> dict[str, Any]:
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    (answer,) = it.ask("create_topics", 6, topics=[wanted], timeout=30_000, validate_only=False)["topics"]
    return dict(answer)


def test_a_quota_holds_for_the_user_that_has_it(tmp_path: Path) -> None:
    with listening(
        {"FIRST": "SASL_PLAINTEXT", "AGAIN": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"},
        settings(),
        tmp_path,
    ) as ports:
        set_quota(ports["PLAINTEXT"], "alice")
        codes = {}
        for user in ("alice", "bob"):
            it = Dialogue(ports["FIRST"])
            it.handshake()
            it.plain(user)
            codes[user] = [create(it, f"{user}-{number}")["error_code"] for number in range(2)]
            it.close()
    assert codes == {"alice": [0, THROTTLING_QUOTA_EXCEEDED], "bob": [0, 0]}


def set_quota(port: int, user: str) -> None:
    wire = raw.Wire("127.0.0.1", port)
    entry = {
        "entity": [{"entity_type": "user", "entity_name": user}],
        "ops": [{"key": "controller_mutation_rate", "value": RATE, "remove": False}],
    }
    wire.send_frame(
        raw.encode_request("alter_client_quotas", 1, {"entries": [entry], "validate_only": False}, 1)
    )
    _, answer = raw.decode_response("alter_client_quotas", 1, wire.receive_frame())
    wire.close()
    assert [each["error_code"] for each in answer["entries"]] == [0]
