"""ReadShareGroupStateSummary: return start offsets of share partitions, and the counts for their lag (KIP-932).

Only brokers send it, to the share coordinator. v1 adds the delivery complete count (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.requests.api import api
from broker.requests.share_state import share_state
from broker.share.state_apis import SUMMARY

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest


@api(key=87, versions=range(2))
def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> Any:
    return share_state(SUMMARY, request, context)
