"""UnregisterController removes a controller that Apache Kafka registered, and rejects the active one."""

from __future__ import annotations

import pytest

from broker.apis.unregister_controller import unregister_controller
from protocol.errors import ErrorCode
from protocol.messages.unregister_controller import UnregisterControllerRequest
from protocol.records import cluster_metadata as schema
from tests.broker.metadata.world import context_of

OTHER = 3


@pytest.fixture
async def _registered(cluster):
    await cluster._writer.commit([schema.RegisterControllerRecord(controller_id=OTHER)])


async def ask(cluster, controller_id):
    request = UnregisterControllerRequest(controller_id=controller_id)
    answer = await unregister_controller(request, context_of(cluster, 0))
    return answer.error_code, answer.error_message


@pytest.mark.usefixtures("_registered")
async def test_another_controller_is_unregistered(cluster):
    assert await ask(cluster, OTHER) == (ErrorCode.none, None)
    assert await ask(cluster, OTHER) == (
        ErrorCode.controller_id_not_registered,
        "Controller ID 3 is not currently registered.",
    )


@pytest.mark.parametrize("level", [33, 32])
async def test_the_active_controller_is_not_unregistered(cluster, level):
    await cluster.update_features({"metadata.version": level})
    assert await ask(cluster, 1) == (
        ErrorCode.invalid_request,
        "Controller cannot unregister itself while it is active.",
    )


@pytest.mark.usefixtures("_registered")
async def test_an_older_metadata_version_has_no_record_for_it(cluster):
    await cluster.update_features({"metadata.version": 32})
    for controller_id in (OTHER, 99):
        assert await ask(cluster, controller_id) == (
            ErrorCode.unsupported_version,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
