"""Records whose subject this broker does not serve yet: kept by identity, so that a snapshot can write them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from protocol.records import cluster_metadata as schema

Kept = dict[tuple[Any, ...], schema.MetadataRecord]


# What each record is about; a removing record has the identity of the one that it removes.
_IDENTITIES: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {
    schema.AccessControlEntryRecord: lambda record: ("acl", record.id),
    schema.RemoveAccessControlEntryRecord: lambda record: ("acl", record.id),
    schema.RegisterControllerRecord: lambda record: ("controller", record.controller_id),
}

_REMOVING: Final = (schema.RemoveAccessControlEntryRecord,)


def keep(kept: Kept, record: schema.MetadataRecord | schema.UnknownMetadataRecord) -> None:
    """Keep the record, or drop the one that it removes. Records without a lasting effect are skipped."""
    identity_of = _IDENTITIES.get(type(record))
    if identity_of is None or isinstance(record, schema.UnknownMetadataRecord):
        return
    identity = identity_of(record)
    if isinstance(record, _REMOVING):
        kept.pop(identity, None)
    else:
        kept[identity] = record
