"""AlterUserScramCredentials: set and delete SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from broker.metadata.scram_credentials import Deletion, Results, Upsertion
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import cluster_refusal
from protocol.errors import NONE
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


@api(key=51, versions=range(1))
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    deletions = [Deletion(each.name, each.mechanism) for each in request.deletions]
    upsertions = [
        Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    results: Results
    denied = cluster_refusal(context, "ALTER")
    if denied is None:
        results = await context.node.metadata.client_control.alter_credentials(deletions, upsertions)
    else:
        users = {*(each.user for each in deletions), *(each.user for each in upsertions)}
        results = dict.fromkeys(sorted(users), denied)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user,
                error_code=NONE if refusal is None else refusal.error,
                error_message=None if refusal is None else refusal.message,
            )
            for user, refusal in results.items()
        ]
    )
