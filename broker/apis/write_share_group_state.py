"""WriteShareGroupState: change the states of share partitions (KIP-932).

Only brokers send it, to the share coordinator. v1 adds the delivery complete count (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.requests.api import api
from broker.requests.share_state import share_state
from broker.share.state_apis import WRITE

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from protocol.messages.write_share_group_state import WriteShareGroupStateRequest


@api(key=85, versions=range(2))
def write_share_group_state(request: WriteShareGroupStateRequest, context: RequestContext) -> Any:
    return share_state(WRITE, request, context)
