"""SCRAM credentials in the image: checks, changes and descriptions (KIP-554). Pure.

The counterpart of Kafka's ``ScramControlManager`` and ``ScramImage``, and of ``ScramFormatter``, which derives keys from a
password.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.metadata.results import ApiError
from protocol.errors import NONE, ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.records import cluster_metadata as schema

Credentials = dict[tuple[str, int], schema.UserScramCredentialRecord]
"""Credentials by user and SCRAM mechanism."""

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
TYPES: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanism -> its number in requests and records."""
DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_DIGEST_OF_TYPE: Final[Mapping[int, str]] = {TYPES[name]: digest for name, digest in DIGESTS.items()}


class Deletion(NamedTuple):
    user: str
    mechanism: int


class Upsertion(NamedTuple):
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramKeys(NamedTuple):
    """The keys that a SCRAM server stores for a password (RFC 5802)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramKeys([hidden])"


def client_key(digest: str, salted_password: bytes) -> bytes:
    return hmac.digest(salted_password, b"Client Key", digest)


def stored_key(digest: str, client_key: bytes) -> bytes:
    return hashlib.new(digest, client_key).digest()


def server_key(digest: str, salted_password: bytes) -> bytes:
    return hmac.digest(salted_password, b"Server Key", digest)


def keys_of_salted(salted_password: bytes, digest: str, salt: bytes, iterations: int) -> ScramKeys:
    stored = stored_key(digest, client_key(digest, salted_password))
    return ScramKeys(salt, stored, server_key(digest, salted_password), iterations)


def keys_of(password: bytes, mechanism: str, salt: bytes, iterations: int) -> ScramKeys:
    """Derive the SCRAM keys of a password. By design this takes milliseconds: do not call it in the event loop."""
    digest = DIGESTS[mechanism]
    return keys_of_salted(hashlib.pbkdf2_hmac(digest, password, salt, iterations), digest, salt, iterations)


Results = dict[str, ApiError | None]


def alter(
    credentials: Credentials,
    deletions: Iterable[Deletion],
    upsertions: Iterable[Upsertion],
    *,
    is_supported: bool = True,
) -> tuple[list[schema.MetadataRecord], Results]:
    """Return (records of the valid changes, for each user None or the error). A user may be listed only once."""
    wanted: dict[str, Deletion | Upsertion] = {}
    results: Results = {}
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in changes:
        if change.user in results:
            continue
        if wanted.pop(change.user, None) is not None:
            results[change.user] = ApiError(
                ErrorCode.duplicate_resource,
                "A user credential cannot be altered twice in the same request",
            )
            continue
        try:
            if not is_supported:
                raise ApiError(
                    ErrorCode.unsupported_version, "The current metadata.version does not support SCRAM"
                )
            _check(credentials, change)
            wanted[change.user] = change
        except ApiError as refusal:
            results[change.user] = refusal
    records = [_record(change) for change in wanted.values()]
    return records, {**dict.fromkeys(wanted), **results}


def _check(credentials: Credentials, change: Deletion | Upsertion) -> None:
    if not change.user:
        raise ApiError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if change.mechanism not in _DIGEST_OF_TYPE:
        raise ApiError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if isinstance(change, Upsertion):
        if change.iterations < ITERATIONS_MIN:
            raise ApiError(ErrorCode.unacceptable_credential, "Too few iterations")
        if change.iterations > ITERATIONS_MAX:
            raise ApiError(ErrorCode.unacceptable_credential, "Too many iterations")
    elif (change.user, change.mechanism) not in credentials:
        raise ApiError(
            ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
        )


def _record(change: Deletion | Upsertion) -> schema.MetadataRecord:
    """Build the record of a change. It contains two keys derived from the password, never the password (RFC 5802)."""
    if isinstance(change, Deletion):
        return schema.RemoveUserScramCredentialRecord(change.user, change.mechanism)
    keys = keys_of_salted(
        change.salted_password, _DIGEST_OF_TYPE[change.mechanism], change.salt, change.iterations
    )
    return schema.UserScramCredentialRecord(
        name=change.user,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=change.iterations,
    )


def apply(
    credentials: Credentials,
    record: schema.UserScramCredentialRecord | schema.RemoveUserScramCredentialRecord,
) -> None:
    if isinstance(record, schema.UserScramCredentialRecord):
        credentials[record.name, record.mechanism] = record
    else:
        credentials.pop((record.name, record.mechanism), None)


def records_between(now: Credentials, then: Credentials) -> Iterable[schema.MetadataRecord]:
    """Return the reverse delta: the records that lead from the current credentials to those of ``then``."""
    for user, mechanism in now.keys() - then.keys():
        yield schema.RemoveUserScramCredentialRecord(user, mechanism)
    yield from (record for key, record in then.items() if now.get(key) != record)


class Described(NamedTuple):
    """The description of a user: (mechanism, iterations) of each credential, or the error."""

    user: str
    error: ErrorCode
    message: str | None
    credentials: Sequence[tuple[int, int]]


def describe(credentials: Credentials, users: Sequence[str]) -> list[Described]:
    """Describe these users, or all users if the list is empty."""
    names = dict.fromkeys(users or (user for user, _ in credentials))
    return [_described(credentials, user, users.count(user) > 1 if users else False) for user in names]


def _described(credentials: Credentials, user: str, is_asked_twice: bool) -> Described:
    if is_asked_twice:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return Described(user, ErrorCode.duplicate_resource, text, ())
    found = [
        (number, credentials[user, number]) for number in _DIGEST_OF_TYPE if (user, number) in credentials
    ]
    if not found:
        text = f"Attempt to describe a user credential that does not exist: {user}"
        return Described(user, ErrorCode.resource_not_found, text, ())
    return Described(user, NONE, None, [(number, record.iterations) for number, record in found])
