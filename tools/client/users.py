"""SCRAM users, whose credentials are in the cluster's metadata (KIP-554)."""

from __future__ import annotations

import hashlib
import os
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tools.client.cluster import Cluster
from tools.client.errors import check

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SALT_BYTES: Final = 24


def list_users(cluster: Cluster, name: str | None = None) -> dict[str, dict[str, int]]:
    """Return user -> SCRAM mechanism -> iterations, for all users, or only for the user ``name``."""
    users = None if name is None else [UserName(name=name)]
    response = cluster.ask(
        "describe_user_scram_credentials", DescribeUserScramCredentialsRequest(users=users)
    )
    check(response.error_code, "the users", response.error_message)
    names = {number: mechanism for mechanism, number in MECHANISMS.items()}
    found = {}
    for each in response.results:
        if each.error_code == ErrorCode.resource_not_found:
            continue
        check(each.error_code, f"user {each.user}", each.error_message)
        found[each.user] = {
            names.get(info.mechanism, str(info.mechanism)): info.iterations for info in each.credential_infos
        }
    return dict(sorted(found.items()))


def add_user(cluster: Cluster, name: str, password: str, mechanism: str, iterations: int) -> None:
    """Set a password with a new salt. The password itself is not sent to the cluster."""
    salt = os.urandom(_SALT_BYTES)
    upsertion = ScramCredentialUpsertion(
        name=name,
        mechanism=MECHANISMS[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(_DIGESTS[mechanism], password.encode(), salt, iterations),
    )
    # A request may alter each user only once.
    _alter(cluster, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def remove_user(cluster: Cluster, name: str, mechanism: str) -> None:
    """Delete the credential of a user for one mechanism."""
    deletion = ScramCredentialDeletion(name=name, mechanism=MECHANISMS[mechanism])
    _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    for each in cluster.ask_controller("alter_user_scram_credentials", request).results:
        check(each.error_code, f"user {each.user}", each.error_message)
