"""What the requests for ACLs have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.metadata.acls import UNKNOWN
from broker.requests.api import CloseConnection

NO_AUTHORIZER: Final = "No Authorizer is configured."


def refuse_unknown(codes: Iterable[Iterable[int]]) -> None:
    """End the connection of a client that has sent the code UNKNOWN, as Kafka does while it parses the request.

    A code that Kafka does not know is answered: a later release may have it.
    """
    if any(UNKNOWN in each for each in codes):
        raise CloseConnection("an ACL, or a filter of ACLs, with the code UNKNOWN")
