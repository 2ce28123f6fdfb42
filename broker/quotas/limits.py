"""Finds the quota that applies to a client, and the clients that share it (``DefaultQuotaCallback``, KIP-55). Pure."""

from __future__ import annotations

from broker.metadata.client_quotas import CLIENT_ID, USER, QuotaEntity, Quotas
from protocol.named_tuple import NamedTuple


class Limit(NamedTuple):
    """A quota value per second, which all clients with the same ``bucket`` share."""

    per_second: float
    bucket: QuotaEntity


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """Return the quota of a client, None if there is none.

    Precedence: (user, client id), (user, default client id), user; then these three for the default user; then the client
    id, and the default client id. If a default applies, the bucket is still for this user and this client id alone.
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
