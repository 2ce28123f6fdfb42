"""What a request may change of the metadata (KIP-599), as its handler asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.quotas.client_quotas import MutationQuota

if TYPE_CHECKING:
    from broker.node.context import RequestContext


def mutation_quota(context: RequestContext, *, strict_since: int) -> MutationQuota:
    """Of the client of this request; from this version on it understands a refusal."""
    user = context.principal.partition(":")[2]
    strict = context.api_version >= strict_since
    return context.node.quotas.mutations(user, context.client_id or "", strict=strict)
