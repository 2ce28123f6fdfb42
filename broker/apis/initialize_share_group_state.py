"""InitializeShareGroupState: create the states of share partitions, or replace those whose offsets were altered (KIP-932).

Only brokers send it, to the share coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.requests.api import api
from broker.requests.share_state import share_state
from broker.share.state_apis import INITIALIZE

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest


@api(key=83, versions=range(1))
def initialize_share_group_state(request: InitializeShareGroupStateRequest, context: RequestContext) -> Any:
    return share_state(INITIALIZE, request, context)
