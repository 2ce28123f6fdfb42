"""ACLs in the metadata: checks, filters, and their records in the metadata log."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.metadata import ApiError, ClusterMetadata, MetadataListener, acls
from broker.metadata.acls import ALLOW, ANY, DENY, LITERAL, MATCH, PREFIXED, Acl, AclFilter, Acls
from broker.metadata.deltas import apply
from broker.metadata.image import Image
from broker.metadata.restoration import copy_of, records_for_restoring
from broker.metadata.values import MetadataDelta
from protocol.errors import ErrorCode
from tests.broker.metadata.world import open_cluster

TOPIC, GROUP = 2, 3
READ = 3
EVERYTHING = AclFilter(ANY, None, ANY, None, None, ANY, ANY)


def acl(name: str = "orders", pattern: int = LITERAL, **changes: Any) -> Acl:
    return Acl(TOPIC, name, pattern, "User:alice", "*", READ, ALLOW)._replace(**changes)


def ids() -> Iterator[UUID]:
    return map(lambda number: UUID(int=number), count(1))


def held(*wanted: Acl) -> Acls:
    return dict(zip(ids(), wanted, strict=False))


def create(existing: Acls, *wanted: Acl) -> tuple[list[UUID | None], list[str | None]]:
    """Create ACLs in an image with the ``existing`` ACLs. Returns the ids in the resulting records, and for each
    wanted ACL its error message, or None if it was accepted."""
    numbers = ids()
    records, results = acls.create(existing, wanted, lambda: next(numbers), has_cidr_hosts=True)
    refused = [each for each in results if each is not None]
    assert all(each.error == ErrorCode.invalid_request for each in refused)
    return [record.id for record in records], [None if each is None else each.message for each in results]  # type: ignore[attr-defined]


def test_an_acl_is_created_once() -> None:
    assert create({}, acl(), acl(), acl("other")) == ([UUID(int=1), UUID(int=2)], [None, None, None])
    assert create(held(acl()), acl(), acl(host="h")) == ([UUID(int=1)], [None, None])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 9}, "Invalid patternType UNKNOWN"),
        ({"operation": -3}, "Invalid operation UNKNOWN"),
        ({"permission_type": 7}, "Invalid permissionType UNKNOWN"),
        ({"operation": 99, "permission_type": 7}, "Invalid operation UNKNOWN"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
        ({"host": ""}, "Host pattern cannot be null or empty"),
        (
            {"host": "10.0.0.0/33"},
            "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]",
        ),
        (
            {"host": "/", "principal": ""},
            "Could not parse principal from `` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ],
)
def test_a_wrong_acl_is_refused_and_the_others_are_created(wrong: dict[str, Any], text: str) -> None:
    assert create({}, acl(**wrong), acl()) == ([UUID(int=1)], [text, None])


def test_a_cidr_host_is_stored_as_written() -> None:
    hosts = ("10.1.2.3/8", "10.0.0.0/8", "010.0.0.0/08", "2001:DB8::/32", "2001:db8::/32", "no address")
    assert create({}, *(acl(host=host) for host in hosts))[1] == [None] * len(hosts)


@pytest.mark.parametrize(
    ("level", "errors"),
    [
        (31, [ErrorCode.unsupported_version, ErrorCode.unsupported_version, None]),
        (32, [None, ErrorCode.invalid_request, None]),
    ],
)
async def test_an_early_metadata_version_has_no_cidr_hosts(
    tmp_path: Path, level: int, errors: list[ErrorCode | None]
) -> None:
    """Syntax is checked only if the metadata.version allows CIDR hosts."""
    cluster = open_cluster(tmp_path, features={"metadata.version": level})
    results = await cluster.acl_control.create_acls([acl(host=host) for host in ("10.0.0.0/8", "a/b", "a")])
    assert [each and each.error for each in results] == errors
    texts = {each.message for each in results if each is not None and each.error == errors[0]}
    assert texts <= {"CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (
            {"resource_type": 4, "resource_name": ""},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_name": ""}, "Invalid empty resource name"),
    ],
)
def test_a_resource_that_cannot_be(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError, match=text):
        acls.check_resource(acl(**wrong))
    acls.check_resource(acl("kafka-cluster", resource_type=4))


NAMES = {
    "literal": acl("orders"),
    "prefix": acl("ord", PREFIXED),
    "itself as prefix": acl("orders", PREFIXED),
    "longer prefix": acl("orders-", PREFIXED),
    "wildcard": acl("*"),
    "prefix of a star": acl("*", PREFIXED),
    "of groups": acl("orders", resource_type=GROUP),
}


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        (EVERYTHING, set(NAMES)),
        (EVERYTHING._replace(resource_type=GROUP), {"of groups"}),
        (EVERYTHING._replace(resource_name="orders"), {"literal", "itself as prefix", "of groups"}),
        (EVERYTHING._replace(resource_name="*"), {"wildcard", "prefix of a star"}),
        (EVERYTHING._replace(pattern_type=PREFIXED, resource_name="*"), {"prefix of a star"}),
        (EVERYTHING._replace(pattern_type=LITERAL), {"literal", "wildcard", "of groups"}),
        (EVERYTHING._replace(pattern_type=MATCH), set(NAMES)),
        (
            EVERYTHING._replace(pattern_type=MATCH, resource_name="orders", resource_type=TOPIC),
            {"literal", "prefix", "itself as prefix", "wildcard"},
        ),
        (EVERYTHING._replace(pattern_type=MATCH, resource_name="*foo"), {"wildcard", "prefix of a star"}),
        (EVERYTHING._replace(pattern_type=9), set()),
    ],
)
def test_a_filter_finds_patterns(filter_: AclFilter, found: set[str]) -> None:
    assert {what for what, each in NAMES.items() if filter_.finds(each)} == found


def test_a_filter_finds_entries() -> None:
    for wanted in (
        {"principal": "User:alice"},
        {"host": "*"},
        {"operation": READ},
        {"permission_type": ALLOW},
    ):
        [name] = wanted
        assert EVERYTHING._replace(**wanted).finds(acl())
        other = {"principal": "User:*", "host": "h", "operation": 4, "permission_type": DENY}[name]
        assert not EVERYTHING._replace(**{name: other}).finds(acl())  # type: ignore[arg-type]


def test_an_acl_that_two_filters_match_is_deleted_once_and_listed_twice() -> None:
    existing = held(acl("a"), acl("b"))
    records, results = acls.delete(
        existing, [EVERYTHING._replace(resource_name="a"), EVERYTHING, EVERYTHING._replace(operation=4)]
    )
    assert [record.id for record in records] == [UUID(int=1), UUID(int=2)]  # type: ignore[attr-defined]
    assert results == [[acl("a")], [acl("a"), acl("b")], []]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"resource_type": 99}, "Unknown patternFilter."),
        ({"pattern_type": 99, "operation": 99}, "Unknown patternFilter."),
        ({"operation": 99}, "Unknown entryFilter."),
        ({"permission_type": 99}, "Unknown entryFilter."),
    ],
)
def test_a_filter_of_an_unknown_code_is_refused_and_the_others_count(
    wrong: dict[str, int], text: str
) -> None:
    records, [refusal, found] = acls.delete(held(acl()), [EVERYTHING._replace(**wrong), EVERYTHING])  # type: ignore[arg-type]
    assert isinstance(refusal, ApiError)
    assert (refusal.error, refusal.message) == (ErrorCode.invalid_request, text)
    assert (len(records), found) == (1, [acl()])


def test_too_many_matches_delete_nothing() -> None:
    existing = held(*(acl(str(number)) for number in range(10_001)))
    with pytest.raises(
        ApiError, match=r"^Cannot remove more than 10000 acls in a single delete operation\.$"
    ):
        acls.delete(existing, [EVERYTHING])
    records, _ = acls.delete(
        existing, [EVERYTHING._replace(resource_name="7"), EVERYTHING._replace(host="h")]
    )
    assert len(records) == 1


def test_what_a_filter_finds_is_told_by_pattern() -> None:
    existing = held(acl("b"), acl("a", host="2"), acl("a", PREFIXED), acl("a", host="1"))
    assert acls.describe(existing, EVERYTHING) == {
        (TOPIC, "a", LITERAL): [acl("a", host="1"), acl("a", host="2")],
        (TOPIC, "a", PREFIXED): [acl("a", PREFIXED)],
        (TOPIC, "b", LITERAL): [acl("b")],
    }


# -- in the cluster -----------------------------------------------------------------------------------------------


class Follower(MetadataListener):
    def __init__(self) -> None:
        self.told: list[tuple[list[Acl], list[Acl]]] = []

    def on_acls_changed(self, removed: Collection[Acl], added: Collection[Acl]) -> None:
        self.told.append((list(removed), list(added)))


async def test_acls_survive_a_restart_and_listeners_get_them(tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    follower = Follower()
    cluster.subscribe(follower)
    assert await cluster.acl_control.create_acls([acl("a"), acl("b"), acl(principal="?")]) != [
        None,
        None,
        None,
    ]
    assert await cluster.acl_control.create_acls([acl("a")]) == [None]
    [deleted, nothing] = await cluster.acl_control.delete_acls(
        [EVERYTHING._replace(resource_name="a"), EVERYTHING._replace(resource_name="c")]
    )
    assert (deleted, nothing) == ([acl("a")], [])
    assert follower.told == [([], [acl("a"), acl("b")]), ([acl("a")], [])]
    await cluster.close()
    again = open_cluster(tmp_path, seed=2)
    assert list(again.image.acls.values()) == [acl("b")]
    await again.close()


async def test_too_many_at_once_are_refused(tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    wanted = [acl(str(number)) for number in range(10_001)]
    refusals = await cluster.acl_control.create_acls(wanted)
    assert {refusal and refusal.error for refusal in refusals} == {ErrorCode.policy_violation}
    assert (len(refusals), cluster.image.acls) == (10_001, {})
    assert await cluster.acl_control.create_acls(wanted[:-1]) == [None] * 10_000
    await cluster.acl_control.create_acls(wanted[-1:])
    [refusal] = await cluster.acl_control.delete_acls([EVERYTHING])
    assert isinstance(refusal, ApiError)
    assert (refusal.error, len(cluster.image.acls)) == (ErrorCode.invalid_request, 10_001)
    await cluster.close()


async def test_an_earlier_image_is_restored(tmp_path: Path) -> None:
    cluster: ClusterMetadata = open_cluster(tmp_path)
    await cluster.acl_control.create_acls([acl("kept"), acl("deleted")])
    saved = copy_of(cluster.image)
    assert saved.acls == cluster.image.acls
    await cluster.acl_control.create_acls([acl("new")])
    await cluster.acl_control.delete_acls([EVERYTHING._replace(resource_name="deleted")])
    image: Image = copy_of(cluster.image)
    for record in records_for_restoring(image, saved, {}):
        apply(image, record, MetadataDelta())
    assert image.acls == saved.acls
    await cluster.close()


async def test_an_image_like_that_of_now_is_restored_without_a_record(tmp_path: Path) -> None:
    cluster: ClusterMetadata = open_cluster(tmp_path)
    saved = copy_of(cluster.image)
    offset = cluster.image.offset
    await cluster.cluster_control.restore(saved, [])
    assert cluster.image.offset == offset
    await cluster.close()
