"""The controller's handling of CreateAcls and DeleteAcls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.metadata import acls
from broker.metadata.acls import Acl, AclFilter
from broker.metadata.client_control import ACLS
from broker.metadata.features import CIDR_HOSTS_FROM, metadata_version
from broker.metadata.results import ApiError

if TYPE_CHECKING:
    from uuid import UUID

    from broker.metadata.image import Image
    from broker.metadata.writer import MetadataWriter


class AclControlManager:
    """Changes ACLs, one request at a time."""

    def __init__(self, image: Image, writer: MetadataWriter, new_id: Callable[[], UUID]) -> None:
        self._image = image
        self._writer = writer
        self._new_id = new_id

    async def create_acls(self, wanted: Sequence[Acl]) -> list[ApiError | None]:
        """Create ACLs. Returns for each ACL None, or the error; an ACL that existed before is no error."""
        await self._writer.settled([ACLS])
        has_cidr_hosts = metadata_version(self._image.features) >= CIDR_HOSTS_FROM
        records, results = acls.create(self._image.acls, wanted, self._new_id, has_cidr_hosts=has_cidr_hosts)
        if records:
            try:
                await self._writer.commit(records, [ACLS])
            except ApiError as refusal:
                return [refusal for _ in wanted]
        return results

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[ApiError | list[Acl]]:
        """Delete ACLs. Returns for each filter the ACLs that were deleted, or the error."""
        await self._writer.settled([ACLS])
        try:
            records, results = acls.delete(self._image.acls, filters)
        except ApiError as refusal:
            return [refusal for _ in filters]
        if records:
            await self._writer.commit(records, [ACLS])
        return results
