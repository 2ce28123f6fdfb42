"""Attributes of the requesting client, for the APIs of client metrics (KIP-714)."""

from __future__ import annotations

from broker.node.context import RequestContext


def client_parameters(context: RequestContext) -> dict[str, str]:
    """Attributes of the client, keyed by the names that subscription patterns use. Unknown attributes are left out."""
    client = context.client
    parameters = {
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": context.peer.removeprefix("/"),
        "client_source_port": str(client.port),
    }
    if context.client_id is not None:
        parameters["client_id"] = context.client_id
    return parameters
