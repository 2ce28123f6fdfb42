"""SCRAM users given at start. Their credentials are written to the metadata, as `kafka-storage format --add-scram` does."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from broker.config.sasl_users import User
from broker.metadata import ClusterMetadata
from broker.metadata.scram_credentials import (
    DIGESTS,
    ITERATIONS_MIN,
    TYPES,
    Credentials,
    Upsertion,
    client_key,
    stored_key,
)
from broker.security.sasl.scram import random_text


async def create_startup_users(metadata: ClusterMetadata, users: Sequence[User]) -> None:
    """Set the credentials of ``users`` that are missing or have another password. Other credentials are not changed."""
    credentials = dict(metadata.image.credentials)
    # In a thread, since each password needs thousands of hashes.
    upsertions = await asyncio.to_thread(
        lambda: [each for user in users for each in _needed(credentials, user)]
    )
    for mechanism in dict.fromkeys(each.mechanism for each in upsertions):
        # One request may change a user only once.
        of_mechanism = [each for each in upsertions if each.mechanism == mechanism]
        results = await metadata.client_control.alter_credentials((), of_mechanism)
        for refusal in filter(None, results.values()):
            raise refusal


def _needed(credentials: Credentials, user: User) -> Sequence[Upsertion]:
    """The credential to set for a user; empty if the stored credential has the same password."""
    digest, number = DIGESTS[user.mechanism], TYPES[user.mechanism]

    def salted(salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(digest, user.password.encode(), salt, iterations)

    kept = credentials.get((user.name, number))
    if kept is not None:
        key = client_key(digest, salted(kept.salt, kept.iterations))
        if stored_key(digest, key) == kept.stored_key:
            return ()
    salt, iterations = random_text().encode(), ITERATIONS_MIN
    return (Upsertion(user.name, number, iterations, salt, salted(salt, iterations)),)
