"""Which quota holds for a client, and with whom it shares it (``DefaultQuotaCallback``, KIP-55). Pure."""

from __future__ import annotations

from broker.metadata.client_quotas import CLIENT_ID, USER, QuotaEntity, Quotas
from protocol.named_tuple import NamedTuple


class Limit(NamedTuple):
    """So much a second, for all clients with the same ``bucket``."""

    per_second: float
    bucket: QuotaEntity


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """The first of these that is set: of the user and the client id, of the user; with the user's name before its default,
    and with that of the client id before its own. Then the client id's.

    Clients that a default holds for have a bucket each, by their own names.
    """
    client = (CLIENT_ID, client_id)
    for name in (user, None):
        of_user = (USER, name)
        for of_client in (client, (CLIENT_ID, None)):
            found = quotas.get((of_user, of_client), {}).get(key)
            if found is not None:
                return Limit(found, ((USER, user), client))
        found = quotas.get((of_user,), {}).get(key)
        if found is not None:
            return Limit(found, ((USER, user),))
    for of_client in (client, (CLIENT_ID, None)):
        found = quotas.get((of_client,), {}).get(key)
        if found is not None:
            return Limit(found, (client,))
    return None
