"""What the APIs of client metrics tell the node of the client that asks (KIP-714)."""

from __future__ import annotations

from broker.node.context import RequestContext


def client_parameters(context: RequestContext) -> dict[str, str]:
    """By the names that the patterns of subscriptions use. What the client has not said is left out."""
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
