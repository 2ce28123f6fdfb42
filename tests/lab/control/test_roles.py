"""Tokens with roles, over HTTP: the role that each call of the control port needs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.control.conftest import JSON, Caller, OpenControl

TOKENS = {"token": "of-stop", "stage_token": "of-stage", "look_token": "of-look"}
CALLS: list[tuple[str, str, Any, str]] = [
    ("GET", "/v1/cluster", None, "look"),
    ("GET", "/openapi.json", None, "look"),
    ("GET", "/metrics", None, "look"),
    ("POST", "/v1/trace/start", None, "stage"),
    ("POST", "/v1/clock/advance", {"by": "1s"}, "stage"),
    ("DELETE", "/v1/clock/advance", None, "stage"),
    ("POST", "/v1/faults", {"rule": "EndTxn -> drop"}, "stage"),
    ("POST", "/v1/faults", {"rule": "EndTxn -> kill"}, "stop"),
    ("POST", "/v1/faults", {"on": "EndTxn", "action": {"do": "crash"}}, "stop"),
    ("POST", "/v1/faults", {"rule": {"on": "txn.marker", "action": "kill"}}, "stop"),
    ("GET", "/v1/topics/orders/configs", None, "look"),
    ("POST", "/v1/topics/orders/configs", {"set": {"retention.ms": "1"}}, "stage"),
    ("POST", "/v1/topics/orders/records", {"value": "v"}, "stage"),
    ("POST", "/v1/groups/workers/offsets", {"topic": "orders", "to": "latest"}, "stage"),
    ("POST", "/v1/nodes/1/lose-power", None, "stop"),
    ("POST", "/v1/nodes/1/start", None, "stage"),
    ("POST", "/v1/nodes/1/kill", None, "stop"),
]
ROLES = ("look", "stage", "stop")


@pytest.fixture
async def roles(open_control: OpenControl) -> Caller:
    return await open_control(**TOKENS)


async def test_each_call_wants_its_role(roles: Caller) -> None:
    for method, path, body, needed in CALLS:
        for role in ROLES:
            headers = {**JSON, "Authorization": f"Bearer of-{role}"}
            status, answer = await roles(method, path, body, headers)
            if ROLES.index(role) >= ROLES.index(needed):
                assert status == 200 or (status, role) == (409, "stop"), (method, path, role, answer)
            else:
                # Whether a rule ends a node is known only after its body was parsed, which needs the role stage.
                first = "stage" if (path, role) == ("/v1/faults", "look") else needed
                sentence = f"this call needs the role {first}, and the token has the role {role}"
                assert (status, answer) == (403, {"error": sentence}), (method, path, body)
    rules = [each.rule.action.do for each in roles.control.faults.list()]
    assert sorted(rules) == ["crash", "drop", "drop", "kill", "kill"]


async def test_a_wrong_token_has_no_role(roles: Caller) -> None:
    for token in ("", "of-nothing", "of-look of-stop"):
        status, _ = await roles("GET", "/v1/cluster", headers={"Authorization": f"Bearer {token}"})
        assert status == 401


async def test_a_refused_call_changes_nothing(roles: Caller) -> None:
    headers = {**JSON, "Authorization": "Bearer of-look"}
    for method, path, body, needed in CALLS:
        if needed != "look":
            await roles(method, path, body, headers)
    assert roles.control.faults.list() == ()
    assert not roles.control.trace.running
    assert await roles.control.node_states() == {"1": "running"}
