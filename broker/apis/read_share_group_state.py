"""ReadShareGroupState: return the states of share partitions to the leader of the topic's partitions (KIP-932).

Only brokers send it, to the share coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.requests.api import api
from broker.requests.share_state import share_state
from broker.share.state_apis import READ

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from protocol.messages.read_share_group_state import ReadShareGroupStateRequest


@api(key=84, versions=range(1))
def read_share_group_state(request: ReadShareGroupStateRequest, context: RequestContext) -> Any:
    return share_state(READ, request, context)
