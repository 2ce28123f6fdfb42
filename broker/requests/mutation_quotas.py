"""The controller mutation quota (KIP-599) of the client of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.quotas.client_quotas import MutationQuota

if TYPE_CHECKING:
    from broker.node.context import RequestContext


def mutation_quota(context: RequestContext, *, strict_since: int) -> MutationQuota:
    """The quota of the requesting client. From version ``strict_since`` on it is strict: requests over it are refused.

    Clients of older versions do not know THROTTLING_QUOTA_EXCEEDED.
    """
    user = context.principal.partition(":")[2]
    strict = context.api_version >= strict_since
    return context.node.quotas.mutations(user, context.client_id or "", strict=strict)
