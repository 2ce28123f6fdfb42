"""Checks and messages shared by the handlers of CreateAcls, DeleteAcls and DescribeAcls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.metadata.acls import UNKNOWN
from broker.requests.api import CloseConnection

NO_AUTHORIZER: Final = "No Authorizer is configured."


def refuse_unknown(codes: Iterable[Iterable[int]]) -> None:
    """Close the connection if the client sent the code UNKNOWN, as Kafka does while it parses the request.

    Codes that Kafka does not define are accepted, since a later release may define them.
    """
    if any(UNKNOWN in each for each in codes):
        raise CloseConnection("an ACL, or a filter of ACLs, with the code UNKNOWN")
