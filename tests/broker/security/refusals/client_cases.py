"""Requests about clients: ACLs, quotas, credentials, tokens, metrics."""

from __future__ import annotations

from tests.broker.security.refusals.cases import case
from tests.broker.security.refusals.cluster_cases import TOPIC
from tests.broker.security.refusals.sides import Body
from tests.broker.security.refusals.world import TOKEN_OWNERS, World


@case("describe_acls")
def describe_acls(world: World, version: int) -> Body:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": "User:absent",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


@case("create_acls")
def create_acls(world: World, version: int) -> Body:
    row = {
        "resource_type": TOPIC,
        "resource_name": "",
        "resource_pattern_type": 3,
        "principal": "User:absent",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {"creations": [row, row]}


@case("delete_acls")
def delete_acls(world: World, version: int) -> Body:
    return {"filters": [describe_acls(world, version)]}


@case("describe_client_quotas")
def describe_client_quotas(world: World, version: int) -> Body:
    return {"components": [{"entity_type": "user", "match_type": 0, "match": "absent"}], "strict": False}


@case("alter_client_quotas")
def alter_client_quotas(world: World, version: int) -> Body:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": "absent"}],
        "ops": [{"key": "request_percentage", "value": 10.0, "remove": False}],
    }
    other = entry | {"entity": [{"entity_type": "client-id", "entity_name": None}]}
    return {"entries": [entry, other], "validate_only": True}


@case("describe_user_scram_credentials")
def describe_scram(world: World, version: int) -> Body:
    return {"users": [{"name": "absent"}, {"name": "other"}]}


@case("alter_user_scram_credentials")
def alter_scram(world: World, version: int) -> Body:
    return {
        "deletions": [{"name": "other", "mechanism": 1}, {"name": "absent", "mechanism": 2}],
        "upsertions": [],
    }


# -- delegation tokens -----------------------------------------------------------------------------------------------


def _create_token(owner: str | None) -> Body:
    """A CreateDelegationToken request that creates no token: its invalid renewers are rejected after the authorization."""
    return {
        "owner_principal_type": "User" if owner else None,
        "owner_principal_name": owner,
        "renewers": [{"principal_type": "Group", "principal_name": "g"}],
        "max_lifetime": -1,
    }


@case("create_delegation_token", "own")
def create_own_token(world: World, version: int) -> Body:
    return _create_token(None)


@case("create_delegation_token", "open", since=3)
def create_open_token(world: World, version: int) -> Body:
    return _create_token("open-u")


@case("create_delegation_token", "shut", since=3)
def create_shut_token(world: World, version: int) -> Body:
    return _create_token("shut-u")


@case("describe_delegation_token")
def describe_tokens(world: World, version: int) -> Body:
    return {"owners": [{"principal_type": "User", "principal_name": user} for user in TOKEN_OWNERS]}


@case("describe_delegation_token", "all")
def describe_all_tokens(world: World, version: int) -> Body:
    return {"owners": None}


@case("renew_delegation_token")
def renew_token(world: World, version: int) -> Body:
    return {"hmac": world.hmacs["shut-u"], "renew_period": 1_000_000}


@case("expire_delegation_token")
def expire_token(world: World, version: int) -> Body:
    return {"hmac": world.hmacs["shut-u"], "expiry_time_period": 1_000_000}


# -- requests that need no permission --------------------------------------------------------------------------------


@case("api_versions")
def api_versions(world: World, version: int) -> Body:
    return {"client_software_name": "matrix", "client_software_version": "1"}


@case("get_telemetry_subscriptions")
def get_telemetry_subscriptions(world: World, version: int) -> Body:
    return {"client_instance_id": None}


@case("push_telemetry")
def push_telemetry(world: World, version: int) -> Body:
    return {"client_instance_id": None, "subscription_id": 1, "metrics": b""}
