"""TxnOffsetCommit: write offsets of a group in a transaction. They become visible only if the transaction commits.

KIP-98. v2 adds leader epochs; v3 is flexible and has the group member (KIP-447); v4 may return
TRANSACTION_ABORTABLE; v5 adds the __consumer_offsets partition to the transaction implicitly (KIP-890); v6 has topic ids,
GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator_runtime.append_errors import CLIENT_ERRORS
from broker.groups.commits import OffsetToCommit
from broker.injection.crash import crash_point
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.node.context import RequestContext
from broker.replicas.partition import Partition
from broker.requests.api import api
from broker.requests.offset_commits import CommitResults, existing
from broker.transactions.verification import Check
from protocol.errors import NONE, ErrorCode
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_LOADING = 2
FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_WITH_IMPLICIT_ADD = 5
FIRST_VERSION_WITH_TOPIC_IDS = 6
NO_SEQUENCE = -1

# Errors of the verification, and the codes that the group coordinator returns for them.
_VERIFICATION_ERRORS = {**CLIENT_ERRORS, ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch}
# Clients before v2 crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).
_OLDER = {ErrorCode.coordinator_load_in_progress: ErrorCode.coordinator_not_available}


class TxnOffsetCommit:
    """One TxnOffsetCommit request. `run` checks it, verifies the transaction, and commits the offsets in the group."""

    def __init__(self, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
        self._request = request
        self._context = context
        self._results = CommitResults(
            TxnOffsetCommitResponse, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
        )
        self._offsets: list[OffsetToCommit] = []

    async def run(self) -> TxnOffsetCommitResponse:
        refusal = self._refusal() if self._context.node.authorizer is not None else NONE
        if refusal is not NONE:
            return self._results.refuse_all(self._request.topics, refusal)
        uses_id = self._context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        self._offsets = existing(self._request.topics, self._context, self._results, uses_id=uses_id)
        if not self._offsets:
            return self._results.response()
        if not self._request.group_id:
            return self._all(ErrorCode.invalid_group_id)
        groups, version = self._context.node.groups, self._context.api_version
        index = groups.partition_for(self._request.group_id)
        partition = self._context.node.replicas.leader(CONSUMER_OFFSETS, index)
        if not isinstance(partition, Partition):
            # Kafka looks up the leader's partition to verify the transaction there, before it looks up the group.
            if not self._context.node.config.transaction_partition_verification_enable:
                return self._all(ErrorCode.not_coordinator)
            return self._all(CLIENT_ERRORS.get(partition, ErrorCode.not_coordinator))
        check = Check(partition, self._request.producer_id, self._request.producer_epoch, NO_SEQUENCE)
        await self._context.node.verifier.run(
            self._request.transactional_id,
            [check],
            adds=version >= FIRST_VERSION_WITH_IMPLICIT_ADD,
            wait_ms=0,
        )
        if check.error is not NONE:
            return self._all(self._verification_error(check.error))
        errors = await self._commit(check)
        crash_point("txn.offset.commit.after")
        return self._respond(errors)

    def _refusal(self) -> ErrorCode:
        """Authorization error for the whole request, or NONE. The producer id needs no authorization of its own."""
        context, request = self._context, self._request
        if not context.authorize("WRITE", "TRANSACTIONAL_ID", request.transactional_id):
            return ErrorCode.transactional_id_authorization_failed
        if not context.authorize("READ", "GROUP", request.group_id):
            return ErrorCode.group_authorization_failed
        return NONE

    async def _commit(self, check: Check) -> Sequence[ErrorCode]:
        """Commit the offsets in the group. Returns an error code for each offset."""
        request = self._request
        return await self._context.node.groups.commit_transactional(
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
            request.producer_id,
            request.producer_epoch,
            self._offsets,
            self._context.api_version,
            guard=check.guard,
        )

    def _verification_error(self, error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.transaction_abortable:
            if self._context.api_version < FIRST_VERSION_WITH_ABORTABLE:
                return ErrorCode.invalid_txn_state
            return error
        return _VERIFICATION_ERRORS.get(error, error)

    def _all(self, error: ErrorCode) -> TxnOffsetCommitResponse:
        """The response with ``error`` for each existing partition that is authorized. The others have their own errors."""
        return self._respond([error] * len(self._offsets))

    def _respond(self, errors: Sequence[ErrorCode]) -> TxnOffsetCommitResponse:
        if self._context.api_version < FIRST_VERSION_WITH_LOADING:
            errors = [_OLDER.get(error, error) for error in errors]
        return self._results.committed(self._request.topics, self._offsets, errors)


@api(key=28, versions=range(7))
async def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    return await TxnOffsetCommit(request, context).run()
