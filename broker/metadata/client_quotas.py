"""Client quotas in the image: checks, changes and filters (KIP-546). Pure.

The counterpart of Kafka's ``ClientQuotaControlManager`` and ``ClientQuotasImage``, with their error messages.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.metadata.results import ApiError
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.records import cluster_metadata as schema

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs in the order of `TYPES`. A pair with the name None is the default entity of its type."""
Quotas = dict[QuotaEntity, dict[str, float]]

TYPES: Final = (IP, USER, CLIENT_ID)
_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
# Quota -> (largest value, whether fractions are allowed), as in Kafka's `QuotaConfig`.
_OF_CLIENTS: Final[Mapping[str, tuple[float, bool]]] = {
    PRODUCER_BYTE_RATE: (_LONG_MAX, False),
    CONSUMER_BYTE_RATE: (_LONG_MAX, False),
    REQUEST_PERCENTAGE: (float("inf"), True),
    CONTROLLER_MUTATION_RATE: (float("inf"), True),
}
_OF_ADDRESSES: Final[Mapping[str, tuple[float, bool]]] = {CONNECTION_CREATION_RATE: (_INT_MAX, False)}
_FRACTION_MIN: Final = 1e-6


class Operation(NamedTuple):
    key: str
    value: float | None
    """The new value; None removes the quota."""


class Alteration(NamedTuple):
    """The requested changes for one entity, not checked yet: the entity may have several parts of the same type."""

    entity: QuotaEntity
    operations: Sequence[Operation]


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with these parts. Of several parts of the same type the last one counts, as in Kafka's map."""
    names = dict(parts)
    known = [(kind, names[kind]) for kind in TYPES if kind in names]
    return (*known, *((kind, name) for kind, name in names.items() if kind not in TYPES))


def alter(
    quotas: Quotas, alterations: Iterable[Alteration]
) -> tuple[list[schema.MetadataRecord], dict[QuotaEntity, ApiError | None]]:
    """Return (records of the valid changes, for each entity None or the error)."""
    records: list[schema.MetadataRecord] = []
    results: dict[QuotaEntity, ApiError | None] = {}
    for entity, operations in alterations:
        values: dict[str, float | None] = {}
        for operation in operations:
            if operation.key in values:
                results[entity] = _invalid(
                    f"Duplicate quota key {operation.key} not updating quota for this entity {_text(entity)}"
                )
            else:
                values[operation.key] = operation.value
        if entity in results:
            results[entity] = _invalid(f"Ignoring duplicate entity {_text(entity)}")
            continue
        try:
            records += _records(entity, values, quotas.get(entity, {}))
            results[entity] = None
        except ApiError as refusal:
            results[entity] = refusal
    return records, results


def _records(
    entity: QuotaEntity, values: Mapping[str, float | None], current: Mapping[str, float]
) -> list[schema.MetadataRecord]:
    keys = _keys_of(entity)
    records: list[schema.MetadataRecord] = []
    for key, value in values.items():
        if value is None:
            if key in current:
                records.append(_record(entity, key, None))
            continue
        _check(keys, key, value)
        if current.get(key) != value:
            records.append(_record(entity, key, value))
    return records


def _record(entity: QuotaEntity, key: str, value: float | None) -> schema.MetadataRecord:
    parts = [schema.EntityData(kind, name) for kind, name in entity]
    return schema.ClientQuotaRecord(parts, key, 0.0 if value is None else value, value is None)


def records_of(quotas: Quotas) -> Iterable[schema.MetadataRecord]:
    """Return the records of all quotas, for a snapshot."""
    return (_record(entity, key, value) for entity, values in quotas.items() for key, value in values.items())


def records_between(now: Quotas, then: Quotas) -> Iterable[schema.MetadataRecord]:
    """Return the reverse delta: the records that lead from the current quotas to those of ``then``."""
    for entity in {**now, **then}:
        before, after = now.get(entity, {}), then.get(entity, {})
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                yield _record(entity, key, after.get(key))


def apply(quotas: Quotas, record: schema.ClientQuotaRecord) -> None:
    entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
    values = quotas.setdefault(entity, {})
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    if not values:
        del quotas[entity]


def _keys_of(entity: QuotaEntity) -> Mapping[str, tuple[float, bool]]:
    """Return the quota keys that are valid for the entity. Raises `ApiError` for an invalid entity."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if entity[0][0] != IP:
        return _OF_CLIENTS
    if len(entity) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    _check_address(entity[0][1])
    return _OF_ADDRESSES


def _check_address(name: str | None) -> None:
    """Raise `ApiError` unless ``name`` is an IP address. Kafka also resolves host names."""
    try:
        if name is not None:
            ipaddress.ip_address(name)
    except ValueError:
        raise _invalid(f"{name} is not a valid IP or resolvable host.") from None


def _check(keys: Mapping[str, tuple[float, bool]], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    largest, fraction = keys[key]
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if value > largest:
        kind = "an INT" if largest == _INT_MAX else "a LONG"
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if not fraction and abs(value % 1.0) > _FRACTION_MIN:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)


def _text(entity: QuotaEntity) -> str:
    return f"ClientQuotaEntity(entries={{{', '.join(f'{kind}={name}' for kind, name in entity)}}})"


# -- filters ------------------------------------------------------------------------------------------------------

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


class Component(NamedTuple):
    """One component of a filter: entity type, match type, and the name for an exact match."""

    kind: str
    match_type: int
    match: str | None


class Filter(NamedTuple):
    """Filter for entities, by type and name or by type alone."""

    exact: Mapping[str, str | None]
    specified: frozenset[str]
    strict: bool
    """If true, the filter does not match entities that have more types than the filter."""

    def finds(self, entity: QuotaEntity) -> bool:
        names = dict(entity)
        if self.strict and len(names) != len(self.exact) + len(self.specified):
            return False
        return self.specified <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self.exact.items()
        )


def filter_of(components: Iterable[Component], *, strict: bool) -> Filter:
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for kind, match_type, match in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise ApiError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
        _check_match(match_type, match)
        if match_type == SPECIFIED:
            specified.add(kind)
        else:
            exact[kind] = match
    asked = exact.keys() | specified
    if IP in asked and len(asked) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return Filter(exact, frozenset(specified), strict)


def _check_match(match_type: int, match: str | None) -> None:
    if match_type == EXACT:
        if match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif match_type in (DEFAULT, SPECIFIED):
        if match is not None:
            name = "DEFAULT" if match_type == DEFAULT else "SPECIFIED"
            raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
    else:
        raise _invalid(f"Unknown match type {match_type}")
