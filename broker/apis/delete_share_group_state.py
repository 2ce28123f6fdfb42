"""DeleteShareGroupState: delete the states of share partitions (KIP-932).

Only brokers send it, to the share coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.requests.api import api
from broker.requests.share_state import share_state
from broker.share.state_apis import DELETE

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest


@api(key=86, versions=range(1))
def delete_share_group_state(request: DeleteShareGroupStateRequest, context: RequestContext) -> Any:
    return share_state(DELETE, request, context)
