"""Filters for the exchanges of the trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lab.trace.exchange import Exchange, Outcome
from protocol.messages.index import APIS
from protocol.slotted import slotted


class BadFilter(ValueError):
    """An invalid filter. The message says what is wrong."""


@slotted(frozen=True)
class TraceFilter:
    """A filter for exchanges. All fields must match; a field that is None matches everything."""

    api_key: int | None = None
    api_version: int | None = None
    node_id: int | None = None
    connection_id: int | None = None
    client_id: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    outcome: Outcome | None = None
    without: frozenset[int] = frozenset()
    """Keys of APIs to leave out. Requests and responses that a rule has stopped are not left out."""

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> TraceFilter:
        """The filter in a URL's query or a command's options: api, version, node, connection, client_id,
        transactional_id, producer_id, outcome, without. Raises ``BadFilter`` for any other name and for invalid values.

        ``api`` is a name in any spelling (EndTxn, end_txn, end-txn) or a key, ``without`` such names separated by commas.
        """
        unknown = set(parameters) - set(_FIELDS)
        if unknown:
            raise BadFilter(f"no filter is called {min(unknown)}; there are: {', '.join(_FIELDS)}")
        fields = {_FIELDS[name]: _value(name, text) for name, text in parameters.items()}
        return cls(**fields)  # type: ignore[arg-type]

    def matches(self, exchange: Exchange) -> bool:
        return self is EVERYTHING or (
            _fits(self.api_key, exchange.api_key)
            and _fits(self.api_version, exchange.api_version)
            and _fits(self.node_id, exchange.node_id)
            and _fits(self.connection_id, exchange.connection_id)
            and _fits(self.client_id, exchange.client_id)
            and _fits(self.outcome, exchange.outcome)
            and not (exchange.api_key in self.without and exchange.outcome in _USUAL)
            and self._is_about(exchange)
        )

    def _is_about(self, exchange: Exchange) -> bool:
        if self.transactional_id is None and self.producer_id is None:
            return True
        return any(
            _fits(self.transactional_id, facts.transactional_id)
            and _fits(self.producer_id, facts.producer_id)
            for facts in exchange.transactions
        )


_USUAL: Final = (Outcome.ANSWERED, Outcome.UNANSWERED, Outcome.IN_PROGRESS)
EVERYTHING: Final = TraceFilter()

_FIELDS: Final = {
    "api": "api_key",
    "version": "api_version",
    "node": "node_id",
    "connection": "connection_id",
    "client_id": "client_id",
    "transactional_id": "transactional_id",
    "producer_id": "producer_id",
    "outcome": "outcome",
    "without": "without",
}
_KEYS: Final = {name.replace("_", ""): key for key, (name, *_) in APIS.items()}


def _fits(wanted: object, found: object) -> bool:
    return wanted is None or wanted == found


def _value(name: str, text: str) -> object:
    match name:
        case "client_id" | "transactional_id":
            return text
        case "api":
            return _api_key(text)
        case "without":
            return frozenset(_api_key(each.strip()) for each in text.split(",") if each.strip())
        case "outcome":
            return _outcome(text)
    try:
        return int(text)
    except ValueError:
        raise BadFilter(f"{name} must be a whole number, not {text!r}") from None


def _api_key(text: str) -> int:
    key = _KEYS.get(text.lower().replace("_", "").replace("-", ""))
    if key is None and text.isdecimal():
        key = int(text)
    if key not in APIS:
        raise BadFilter(f"no API is called {text!r}")
    return key


def _outcome(text: str) -> Outcome:
    try:
        return Outcome(text.lower().replace("-", "_"))
    except ValueError:
        known = ", ".join(each.value for each in Outcome)
        raise BadFilter(f"no outcome is called {text!r}; there are: {known}") from None
