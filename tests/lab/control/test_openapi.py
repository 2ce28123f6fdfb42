"""The OpenAPI document is valid and complete, and its examples are real responses."""

from __future__ import annotations

import re
from typing import Any

import aiokafka
import msgspec
import pytest

from lab.control.access import Role
from lab.control.operations import OPERATIONS, Operation, Stream, discover
from tests.lab.control.conftest import Caller, OpenControl, hang

discover()
NAMES = {each.name: each for each in OPERATIONS.values()}


@pytest.mark.parametrize("token", ["", "secret"])
async def test_it_is_openapi_3_1(open_control: OpenControl, token: str) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    caller = await open_control(token=token)
    status, document = await caller("GET", "/openapi.json", headers={"Authorization": f"Bearer {token}"})
    assert status == 200
    assert document["openapi"].startswith("3.1.")
    validator.OpenAPIV31SpecValidator(document).validate()
    assert ("security" in document) == bool(token)
    for methods in document["paths"].values():
        for operation in methods.values():
            role = operation.get("x-role")
            assert operation.get("security", ["inherited"]) == _security(role, bool(token))


def _security(role: str | None, with_token: bool) -> list[object]:
    if role is None:
        return []  # health checks need no token
    return [{"token": [role]}] if with_token else ["inherited"]


def test_which_operations_need_which_role() -> None:
    """Reading operations are GET, and no GET changes anything. All other operations are listed here, so that a new operation
    needs a decision."""
    by_role: dict[Role, set[str]] = {role: set() for role in Role}
    for operation in OPERATIONS.values():
        by_role[operation.role].add(operation.name)
        assert (operation.role is Role.LOOK) == (operation.method == "GET"), operation.name
    assert by_role[Role.STOP] == {"kill_node", "stop_node", "lose_power_of_node", "damage_files"}
    assert by_role[Role.STAGE] == {
        "abort_in_partition",
        "abort_transaction",
        "add_fault",
        "advance_clock",
        "alter_topic_configs",
        "cancel_advance",
        "clear_faults",
        "create_topic",
        "move_coordinator",
        "move_leader",
        "misroute_node",
        "pause_node",
        "produce_record",
        "release_fault",
        "remove_fault",
        "remove_snapshot",
        "reset_broker",
        "reset_offsets",
        "restore_snapshot",
        "resume_node",
        "skew_node",
        "start_node",
        "start_trace",
        "stop_trace",
        "take_snapshot",
    }


async def test_it_has_every_operation_with_a_sentence_and_an_example(caller: Caller) -> None:
    document = await caller.get("/openapi.json")
    described = {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert described.keys() == OPERATIONS.keys()
    for operation in described.values():
        assert re.fullmatch(r"[A-Z].+\.", operation["summary"]), operation
        (content,) = operation["responses"]["200"]["content"].values()
        assert content["example"], operation
        if "requestBody" in operation:
            assert operation["requestBody"]["content"]["application/json"]["example"], operation


@pytest.mark.parametrize("name", NAMES)
async def test_the_examples_are_what_the_schemas_say(caller: Caller, name: str) -> None:
    # jsonschema is installed together with the validator of the document.
    jsonschema = pytest.importorskip("jsonschema")
    operation = NAMES[name]
    document = await caller.get("/openapi.json")
    described = document["paths"][operation.path][operation.method.lower()]
    contents = [described["responses"]["200"]["content"]]
    contents += [described["requestBody"]["content"]] if operation.body is not None else []
    for content in contents:
        (one,) = content.values()
        schema = {**one["schema"], "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(one["example"])
    if operation.body is not None:
        msgspec.convert(operation.body_example, type=operation.body)
    if operation.answer is not Stream:
        msgspec.convert(operation.answer_example, type=operation.answer)


@pytest.mark.parametrize("name", [name for name, each in NAMES.items() if each.body is not None])
async def test_the_examples_of_bodies_can_be_sent(caller: Caller, name: str) -> None:
    operation = NAMES[name]
    if name == "damage_files":
        await write_and_kill(caller)
    body = operation.body_example
    if name == "abort_in_partition":
        body = {"producer_id": await hang(caller)}
    await caller.post("/v1/faults", {"rule": "EndTxn -> hold"})
    path = operation.path.format(fault_id=1, node_id=1, topic="orders", partition=0, group="workers")
    answer = await caller.post(path, body)
    assert set(answer) == _fields(operation)


async def write_and_kill(caller: Caller) -> None:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("orders", b"value", partition=0)
    await caller.post("/v1/nodes/1/kill")


def _fields(operation: Operation) -> set[str]:
    answer: Any = operation.answer
    return set(answer.__struct_fields__)
