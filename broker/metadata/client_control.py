"""The controller's handling of client quotas and SCRAM credentials.

Also saves and restores them, together with delegation tokens, ACLs, and the settings of brokers and groups, for a reset
of the broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.metadata import client_quotas, scram_credentials
from broker.metadata.client_quotas import Alteration, QuotaEntity
from broker.metadata.features import SCRAM_FROM, metadata_version
from broker.metadata.image import Image
from broker.metadata.scram_credentials import Deletion, Upsertion

if TYPE_CHECKING:
    from broker.metadata.results import ApiError
    from broker.metadata.writer import MetadataWriter

_QUOTAS = "/quotas"
_CREDENTIALS = "/credentials"
ACLS = "/acls"
TOKENS = "/tokens"
_OF_CLIENTS = (_QUOTAS, _CREDENTIALS, ACLS, TOKENS)
# Changes under the same name wait for each other. With a slash, the names differ from every topic name.


class ClientControlManager:
    """Changes client quotas and SCRAM credentials, one request at a time."""

    def __init__(self, image: Image, writer: MetadataWriter) -> None:
        self._image = image
        self._writer = writer

    async def alter_quotas(
        self, alterations: Iterable[Alteration], *, validate_only: bool = False
    ) -> dict[QuotaEntity, ApiError | None]:
        """Change client quotas. Returns for each entity None or the error."""
        await self._writer.settled([_QUOTAS])
        records, results = client_quotas.alter(self._image.quotas, alterations)
        if records and not validate_only:
            await self._writer.commit(records, [_QUOTAS])
        return results

    async def alter_credentials(
        self, deletions: Iterable[Deletion], upsertions: Iterable[Upsertion]
    ) -> scram_credentials.Results:
        """Change SCRAM credentials. Returns for each user None or the error."""
        await self._writer.settled([_CREDENTIALS])
        is_supported = metadata_version(self._image.features) >= SCRAM_FROM
        records, results = scram_credentials.alter(
            self._image.credentials, deletions, upsertions, is_supported=is_supported
        )
        if records:
            await self._writer.commit(records, [_CREDENTIALS])
        return results

    def saved(self) -> Image:
        """Return a copy of the quotas, credentials, tokens, ACLs, and settings of all but topics, for `restore`."""
        image = self._image
        quotas = {entity: dict(values) for entity, values in image.quotas.items()}
        return Image(
            quotas=quotas,
            credentials=dict(image.credentials),
            tokens=dict(image.tokens),
            acls=dict(image.acls),
            configs={resource: dict(configs) for resource, configs in image.configs.items()},
        )

    async def restore(self, saved: Image) -> None:
        """Restore exactly what `saved` has returned."""
        from broker.metadata import restoration

        await self._writer.all_settled()
        records = [
            *restoration.records_for_configs(self._image, saved),
            *restoration.records_for_clients(self._image, saved),
        ]
        if records:
            await self._writer.commit(records, _OF_CLIENTS)
