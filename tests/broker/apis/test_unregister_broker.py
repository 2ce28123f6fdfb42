"""UnregisterBroker removes a stopped broker from the metadata, and rejects a running one."""

from __future__ import annotations

from broker.apis.unregister_broker import unregister_broker
from protocol.errors import ErrorCode
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.metadata.world import away, context_of


async def ask(cluster, broker_id):
    answer = await unregister_broker(UnregisterBrokerRequest(broker_id=broker_id), context_of(cluster, 0))
    return answer.error_code, answer.error_message


async def test_a_stopped_broker_is_unregistered(cluster):
    away(cluster, 2, fenced=True)
    assert await ask(cluster, 2) == (ErrorCode.none, "")
    assert list(cluster.image.brokers) == [1]
    assert (await ask(cluster, 2))[0] == ErrorCode.broker_id_not_registered


async def test_a_running_broker_is_not_unregistered(cluster):
    assert (await ask(cluster, 1))[0] == ErrorCode.invalid_request
    assert list(cluster.image.brokers) == [1]
