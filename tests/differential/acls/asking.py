"""Creates the ACLs of a case (a random set of ACLs) at a broker, and sends requests with several principals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tests.differential.acls.cases import (
    ANY,
    GROUP,
    NAMES,
    TOPICS,
    TRANSACTIONAL_ID,
    Answers,
    Case,
    Rule,
    Wanted,
    creation,
    filter_body,
    in_order,
)
from tests.support import raw
from tests.support.deadlines import Deadline

PASSWORD = "secret"
REFUSED_ID = 53
EVERYTHING: Wanted = (ANY, None, ANY, None, None, ANY, ANY)
Body = dict[str, Any]


class Client(Protocol):
    """One client of the broker."""

    def ask(self, api: str, version: int, **body: Any) -> Body: ...

    def close(self) -> None: ...


class Connection:
    """A client that authenticates with SASL/PLAIN."""

    def __init__(self, port: int, host: str, user: str | None = None) -> None:
        """Connect from the address ``host``. Without a ``user`` the port must belong to a listener without SASL."""
        self._wire = raw.Wire("127.0.0.1", port, source=host)
        if user is not None:
            self.ask("sasl_handshake", 1, mechanism="PLAIN")
            answer = self.ask("sasl_authenticate", 1, auth_bytes=f"\0{user}\0{PASSWORD}".encode())
            assert not answer["error_code"], answer

    def ask(self, api: str, version: int, **body: Any) -> Body:
        self._wire.send_frame(raw.encode_request(api, version, body, 1))
        return raw.decode_response(api, version, self._wire.receive_frame())[1]

    def close(self) -> None:
        self._wire.close()


class Asking:
    """Sends the requests of a case (a random set of ACLs) to a broker, as a super user and as other clients."""

    def __init__(self, admin: Client, askers: Mapping[str, Client]) -> None:
        """``admin`` is the client of a super user, ``askers`` are the clients whose rights are compared."""
        self._admin = admin
        self._askers = askers

    def __enter__(self) -> Asking:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in TOPICS]
        self._admin.ask("create_topics", 7, topics=topics, timeout=10_000)
        self._admin.ask("find_coordinator", 4, key_type=0, coordinator_keys=["a"])
        self._await_coordinators()
        return self

    def _await_coordinators(self) -> None:
        """Wait until the coordinators of all groups have loaded. The first FindCoordinator starts the loading."""
        deadline = Deadline()
        codes = {None}
        while codes != {0}:
            assert not deadline.is_over, f"responses of the coordinators: {codes}"
            groups = self._admin.ask("describe_groups", 5, groups=list(NAMES[GROUP]))["groups"]
            codes = {each["error_code"] for each in groups}

    def __exit__(self, *_: object) -> None:
        for each in (self._admin, *self._askers.values()):
            each.close()

    def answers(self, case: Case) -> Answers:
        rows = [creation(rule) for rule in case.acls]
        created = self._admin.ask("create_acls", 3, creations=rows)["results"]
        self._await(len(set(case.acls)))
        told = {who: answers_of(client) for who, client in self._askers.items()}
        described = [self._described(wanted) for wanted in case.filters]
        # One filter alone, and two in one request: the second of them also finds what the first one deletes.
        deleted = [*self._deleted(*case.filters[:2]), *self._deleted(case.filters[2])]
        self._await(len(_left(case, described)))
        left = self._described(EVERYTHING)
        self._deleted(EVERYTHING)
        self._await(0)
        return {
            "created": [[each["error_code"], each["error_message"]] for each in created],
            "may": told,
            "described": described,
            "deleted": deleted,
            "left": left,
        }

    def _await(self, count: int) -> None:
        """Wait until the broker has this number of ACLs: Kafka's controller responds before the broker has read them."""
        deadline = Deadline()
        while len(self._described(EVERYTHING)) != count:
            assert not deadline.is_over, f"the broker does not reach {count} ACLs"

    def _described(self, wanted: Wanted) -> list[list[Any]]:
        answer = self._admin.ask("describe_acls", 3, **filter_body(wanted))
        assert (answer["error_code"], answer["error_message"]) == (0, ""), answer
        return in_order(
            (
                resource["resource_type"],
                resource["resource_name"],
                resource["pattern_type"],
                acl["principal"],
                acl["host"],
                acl["operation"],
                acl["permission_type"],
            )
            for resource in answer["resources"]
            for acl in resource["acls"]
        )

    def _deleted(self, *filters: Wanted) -> list[Any]:
        rows = [filter_body(wanted) for wanted in filters]
        results = self._admin.ask("delete_acls", 3, filters=rows)["filter_results"]
        return [_deletion(each) for each in results]


def _deletion(result: Mapping[str, Any]) -> list[Any]:
    assert not any(acl["error_code"] or acl["error_message"] for acl in result["matching_acls"])
    names = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation")
    found = ([acl[name] for name in (*names, "permission_type")] for acl in result["matching_acls"])
    return [result["error_code"], result["error_message"], in_order(found)]


def _left(case: Case, described: Sequence[Sequence[Sequence[Any]]]) -> set[Rule]:
    found = {tuple(rule) for rules in described for rule in rules}
    return {rule for rule in case.acls if rule not in found}


def answers_of(client: Client) -> Answers:
    """The client's rights on topics, groups, transactional ids and the cluster, as error codes or authorized operations."""
    topics = client.ask(
        "metadata",
        12,
        topics=[{"name": name} for name in TOPICS],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )["topics"]
    groups = client.ask("describe_groups", 5, groups=list(NAMES[GROUP]), include_authorized_operations=True)[
        "groups"
    ]
    cluster = client.ask("describe_cluster", 0, include_cluster_authorized_operations=True)
    ids = client.ask("find_coordinator", 4, key_type=1, coordinator_keys=list(NAMES[TRANSACTIONAL_ID]))[
        "coordinators"
    ]
    producer = client.ask("init_producer_id", 4, transactional_id=None, transaction_timeout=1000)
    return {
        "topics": _by_name(topics, "name", TOPICS, "topic_authorized_operations"),
        "groups": _by_name(groups, "group_id", NAMES[GROUP], "authorized_operations"),
        "cluster": cluster["cluster_authorized_operations"],
        "ids": _by_name(ids, "key", NAMES[TRANSACTIONAL_ID]),
        "any topic": producer["error_code"],
    }


def _by_name(
    rows: Sequence[Mapping[str, Any]], key: str, names: Sequence[str], operations: str = ""
) -> list[int]:
    """The error code of each name or, if it is 0, the authorized operations. Without ``operations``, as for
    transactional ids, the error code if it is an authorization error, otherwise 0."""
    found = {row[key]: row for row in rows}
    if operations:
        return [found[name]["error_code"] or found[name][operations] for name in names]
    return [found[name]["error_code"] * (found[name]["error_code"] == REFUSED_ID) for name in names]
