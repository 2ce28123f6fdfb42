"""Formats exchanges as JSON: one object or one line each."""

from __future__ import annotations

import json

from lab.trace.decoding import Decoded, answer_dict, request_dict
from lab.trace.exchange import Exchange, Names, no_names


def to_json(
    exchange: Exchange, names: Names = no_names, *, bodies: bool = True, values: bool = False
) -> Decoded:
    """An exchange as an object for ``json``.

    number, node, from_node (a node of the cluster, or null), connection, peer ("host:port"), listener, api, api_key,
    version, correlation_id, client_id, arrived_ms, arrived_us (since the epoch), answered_ms, took_us, request_bytes,
    answer_bytes, outcome ("answered", "unanswered", "answer_lost", "connection_gone", "held", "in_progress"), was_held,
    handled_alone, rule (that has responded or altered the response, or null), principal, transactions ([{transactional_id,
    producer_id, producer_epoch}]), and with ``bodies`` request and answer (`decoding.request_dict`), the records' keys and
    values only with ``values``.
    """
    shown: Decoded = {
        "number": exchange.number,
        "node": exchange.node_id,
        "from_node": exchange.from_node,
        "connection": exchange.connection_id,
        "peer": exchange.peer,
        "listener": exchange.listener,
        "api": exchange.api,
        "api_key": exchange.api_key,
        "version": exchange.api_version,
        "correlation_id": exchange.correlation_id,
        "client_id": exchange.client_id,
        "arrived_ms": exchange.arrived_ms,
        "arrived_us": exchange.arrived_us,
        "answered_ms": exchange.answered_ms,
        "took_us": exchange.took_us,
        "request_bytes": exchange.request_bytes,
        "answer_bytes": exchange.answer_bytes,
        "outcome": exchange.outcome.value,
        "was_held": exchange.was_held,
        "handled_alone": exchange.handled_alone,
        "rule": exchange.rule,
        "principal": exchange.principal,
        "transactions": [facts._asdict() for facts in exchange.transactions],
    }
    if bodies:
        shown["request"] = request_dict(exchange, names, values=values)
        shown["answer"] = answer_dict(exchange, names, values=values)
    return shown


def json_line(
    exchange: Exchange, names: Names = no_names, *, bodies: bool = True, values: bool = False
) -> str:
    """The object of ``to_json`` as one line, with a line feed."""
    return json.dumps(to_json(exchange, names, bodies=bodies, values=values), ensure_ascii=False) + "\n"
