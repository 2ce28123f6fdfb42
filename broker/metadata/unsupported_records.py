"""Records whose subject this broker does not serve: kept by identity, so that a snapshot can write them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from protocol.records import cluster_metadata as schema

Kept = dict[tuple[Any, ...], schema.MetadataRecord]


# What each record is about: a later one takes the place of the one before.
_IDENTITIES: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    schema.RegisterControllerRecord: lambda record: ("controller", record.controller_id),
}


def keep(kept: Kept, record: schema.MetadataRecord | schema.UnknownMetadataRecord) -> None:
    """Keep the record. Records without a lasting effect are skipped."""
    identity_of = _IDENTITIES.get(type(record))
    if identity_of is not None and not isinstance(record, schema.UnknownMetadataRecord):
        kept[identity_of(record)] = record
