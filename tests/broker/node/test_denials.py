"""A denied operation is logged with its principal, operation and resource."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.node import context as module
from broker.node.context import RequestContext


class Denies:
    def authorize(self, *asked: str) -> bool:
        return asked[2] == "READ"

    def authorize_by_resource_type(self, *asked: str) -> bool:
        return False


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    lines: list[tuple[str, dict[str, Any]]] = []
    log = SimpleNamespace(info=lambda event, **facts: lines.append((event, facts)))
    monkeypatch.setattr(module, "log", log)
    return lines


def context(authorizer: object) -> RequestContext:
    node: Any = SimpleNamespace(authorizer=authorizer)
    listener: Any = None
    return RequestContext(node, listener, 0, 11, "app", "/10.0.0.7", 5, principal="User:alice")


def test_a_denied_operation_is_logged(told: list[tuple[str, dict[str, Any]]]) -> None:
    assert not context(Denies()).authorize("WRITE", "TOPIC", "orders")
    ((event, facts),) = told
    assert event == "authorization denied"
    assert facts == {
        "principal": "User:alice",
        "operation": "WRITE",
        "resource": "TOPIC:orders",
        "peer": "10.0.0.7",
        "client_id": "app",
        "api_key": 0,
        "connection": 5,
    }
    assert not context(Denies()).authorize_by_resource_type("WRITE", "TOPIC")
    assert told[1][1]["resource"] == "TOPIC"


def test_allowed_operations_and_filtered_results_are_not_logged(
    told: list[tuple[str, dict[str, Any]]],
) -> None:
    assert context(Denies()).authorize("READ", "TOPIC", "orders")
    assert not context(Denies()).authorize("WRITE", "TOPIC", "orders", logs_denial=False)
    assert context(None).authorize("WRITE", "TOPIC", "orders")
    assert context(None).authorize_by_resource_type("WRITE", "TOPIC")
    assert told == []
