"""OffsetCommit: commit the offsets of a group.

v2 to v4 can set a retention time, later versions use the broker's (KIP-211); KIP-320 (v6) adds leader epochs; KIP-345 (v7)
static members; KIP-848 (v9) member epochs and GROUP_ID_NOT_FOUND; v10 uses topic ids.
"""

from __future__ import annotations

from typing import Final

from broker.groups.commits import Committer
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.offset_commits import CommitResults, existing
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE: Final = 10


@api(key=8, versions=range(2, 11))
async def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    results = CommitResults(OffsetCommitResponse, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    if not context.authorize("READ", "GROUP", request.group_id):
        return results.refuse_all(request.topics, ErrorCode.group_authorization_failed)
    uses_id = context.api_version >= TOPIC_IDS_SINCE
    offsets = existing(request.topics, context, results, uses_id=uses_id)
    if not offsets:
        return results.response()
    who = Committer(
        request.group_id, request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
    )
    errors = await context.node.groups.commit(who, offsets, request.retention_time_ms, context.api_version)
    return results.committed(request.topics, offsets, errors)
