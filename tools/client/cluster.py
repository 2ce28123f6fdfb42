"""A client for a Kafka cluster, which finds leaders and coordinators."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.deadlines import stretched
from odradek.pending import about, refused, waiting_for
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from tools.client.connection import Address, Connection, parse_bootstrap
from tools.client.deadline import Deadline
from tools.client.errors import (
    KafkaError,
    NoResponse,
    OutOfTime,
    ToolError,
    Unreachable,
    Unsupported,
    check,
    is_retriable,
    no_such,
)

if TYPE_CHECKING:
    from odradek.client_security import ClientSecurity

GROUP, TRANSACTION = 0, 1
RETRY_S: Final = stretched(30.0)
RETRY_PAUSE_S: Final = 0.1
NODE_S: Final = stretched(2.0)
"""Timeout in seconds of a query to several nodes, whose result is useful even if some nodes do not respond."""
THREADS_MAX: Final = 16
FIRST_PAUSE_S: Final = 0.002
"""Seconds before the first retry after CONCURRENT_TRANSACTIONS. Each later pause is twice the previous one."""

_T = TypeVar("_T")


class Cluster:
    """A Kafka cluster. Connections are opened on first use, and again after an error. Also a context manager.

    ``timeout_s`` limits all requests and retries together. When it has passed, they raise ``OutOfTime``.
    """

    def __init__(
        self, bootstrap: str, security: ClientSecurity | None = None, timeout_s: float | None = None
    ) -> None:
        self.bootstrap = bootstrap
        self._security = security
        self._deadline = Deadline(timeout_s)
        self._seeds = parse_bootstrap(bootstrap)
        self._connections: dict[Address, Connection] = {}
        self._responsive: list[Address] = []
        """The address that responded last (at most one). `any` tries it first: a silent address causes delays."""
        self.nodes: dict[int, Address] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._topics: dict[str, MetadataResponseTopic] = {}
        self._silent: dict[int, ToolError] = {}

    def within(self, timeout_s: float) -> AbstractContextManager[None]:
        """Context manager: a shorter limit for requests in the block, as in ``with cluster.within(0.5): ...``."""
        return self._deadline.within(timeout_s)

    # -- requests -----------------------------------------------------------------------------------------------

    def any(self) -> Connection:
        """A connection to the first bootstrap server that responds."""
        failure: Unreachable | None = None
        for address in [*self._responsive, *self._seeds, *self.nodes.values()]:
            try:
                found = self._connection(address)
            except Unreachable as error:
                failure = failure or error
            else:
                self._responsive = [address]
                return found
        raise failure or Unreachable("no bootstrap server was given")

    def node(self, node_id: int) -> Connection:
        """A connection to this node. Raises ``Unreachable`` if the cluster's metadata does not contain it."""
        if node_id not in self.nodes:
            self.refresh()
        if node_id not in self.nodes:
            raise Unreachable(f"node {node_id} is not running")
        return self._connection(self.nodes[node_id])

    def ask(self, api: str, request: Any, highest: int | None = None) -> Any:
        """Send a request to any node, in a version of at most ``highest``, and return the response."""
        return self._with(self.any, api, request, highest)

    def ask_node(self, node_id: int, api: str, request: Any, highest: int | None = None) -> Any:
        return self._with(lambda: self.node(node_id), api, request, highest)

    def ask_controller(self, api: str, request: Any) -> Any:
        if self.controller_id not in self.nodes:
            self.refresh()
        return self.ask_node(self.controller_id, api, request)

    def each(
        self, ask: Callable[[int], _T], nodes: Iterable[int] | None = None
    ) -> tuple[dict[int, _T], dict[int, ToolError]]:
        """Call ``ask`` with each node id in ``nodes`` (None: all nodes), in parallel.

        Returns (results by node id, errors by node id of the nodes without a result). All calls together are
        limited to ``NODE_S`` seconds. ``ask`` is not called for a node that has timed out before; its earlier
        error is returned.
        """
        if nodes is None:
            self.refresh()
            nodes = self.nodes
        wanted = sorted(nodes)
        found: dict[int, _T] = {}
        errors = {node_id: self._silent[node_id] for node_id in wanted if node_id in self._silent}
        for node_id in wanted:
            if node_id not in self.nodes:
                errors[node_id] = Unreachable(f"node {node_id} is not running")
        asked = [node_id for node_id in wanted if node_id not in errors]
        if not asked:
            return found, errors
        with self.within(NODE_S), ThreadPoolExecutor(min(THREADS_MAX, len(asked))) as pool:
            futures = {node_id: pool.submit(ask, node_id) for node_id in asked}
            for node_id, future in futures.items():
                try:
                    found[node_id] = future.result()
                except ToolError as error:
                    errors[node_id] = error
                    if isinstance(error, NoResponse | OutOfTime):
                        self._silent[node_id] = error
        return found, errors

    def of_all(self, ask: Callable[[int], list[_T]], missing: list[str] | None = None) -> list[_T]:
        """Call ``ask`` with each node id, as `each` does, and concatenate the results.

        For each failed node, a sentence is appended to ``missing``. If ``missing`` is None, or if all nodes
        failed, raises the error of the first failed node.
        """
        found, errors = self.each(ask)
        if errors and (missing is None or not found):
            raise next(iter(errors.values()))
        if missing is not None:
            missing += [f"node {node_id} could not be asked: {error}" for node_id, error in errors.items()]
        return [each for of_node in found.values() for each in of_node]

    def ask_coordinator(
        self, kind: int, name: str, api: str, request: Any, highest: int | None = None
    ) -> Any:
        """Send a request to the coordinator of a group or a transactional id. The caller must check the error codes."""
        return self.ask_node(self.coordinator(kind, name), api, request, highest)

    def _with(self, connect: Callable[[], Connection], api: str, request: Any, highest: int | None) -> Any:
        connection = connect()
        try:
            return connection.ask(api, request, highest)
        except OutOfTime:
            self._forget(connection)
            raise
        except NoResponse as error:
            self._forget(connection)
            if self._deadline.is_over:
                raise self._deadline.out_of_time(error) from None
            raise
        except Unreachable:
            # The broker may have closed an idle connection.
            self._forget(connection)
            return connect().ask(api, request, highest)

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(address, self._security, self._deadline)
        return self._connections[address]

    def _forget(self, connection: Connection) -> None:
        connection.close()
        self._connections.pop(connection.address, None)
        self._responsive = [each for each in self._responsive if each != connection.address]

    # -- metadata -----------------------------------------------------------------------------------------------

    def refresh(
        self, topics: Iterable[str] | None = (), *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        """Refresh the metadata of these topics, or of all if None. ``create`` allows auto-creation by the broker."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response = self.ask("metadata", MetadataRequest(topics=wanted, allow_auto_topic_creation=create))
        self.nodes = {each.node_id: (each.host, each.port) for each in response.brokers}
        self.controller_id, self.cluster_id = response.controller_id, response.cluster_id
        self._topics.update((topic.name, topic) for topic in response.topics if not topic.error_code)
        return list(response.topics)

    def topic(self, name: str) -> MetadataResponseTopic:
        """The metadata of a topic. Raises ``ToolError`` if it does not exist."""
        (found,) = self.refresh([name])
        if found.error_code == ErrorCode.unknown_topic_or_partition:
            raise no_such("topic", name)
        check(found.error_code, name)
        return found

    def leader(self, topic: str, partition: int) -> int:
        """Node id of a partition's leader. Raises ``KafkaError`` if there is none."""
        found = self._topics.get(topic) or self.topic(topic)
        for each in found.partitions:
            if each.partition_index == partition:
                if each.leader_id < 0:
                    self._topics.pop(topic)
                    raise KafkaError(ErrorCode.leader_not_available, f"{topic}-{partition}")
                return each.leader_id
        raise ToolError(f"{topic} has no partition {partition}: the last is {len(found.partitions) - 1}")

    def ask_leader(
        self, topic: str, partition: int, api: str, request: Any, highest: int | None = None
    ) -> Any:
        return self.ask_node(self.leader(topic, partition), api, request, highest)

    def forget_topic(self, topic: str) -> None:
        """Drop the topic's cached leaders, so that the next request refreshes them."""
        self._topics.pop(topic, None)

    def coordinator(self, kind: int, name: str) -> int:
        """Node id of the coordinator of a group (0) or a transactional id (1)."""
        about(name, "transactional_id" if kind == TRANSACTION else "group")

        def find() -> int:
            request = FindCoordinatorRequest(key=name, key_type=kind, coordinator_keys=[name])
            response = self.ask("find_coordinator", request)
            found = response.coordinators[0] if response.coordinators else response
            check(found.error_code, f"the coordinator of {name}", found.error_message)
            self.nodes.setdefault(found.node_id, (found.host, found.port))
            return int(found.node_id)

        return self.retrying(find)

    def retrying(self, function: Callable[[], _T]) -> _T:
        """Return the function's result. Retries retriable errors for at most ``RETRY_S`` seconds."""
        with waiting_for(""):
            return self._retrying(function)

    def _retrying(self, function: Callable[[], _T]) -> _T:
        deadline, pause_s = time.monotonic() + RETRY_S, FIRST_PAUSE_S
        last: ToolError | None = None
        while True:
            try:
                return function()
            except OutOfTime as error:
                raise self._deadline.out_of_time(error.last or last) from None
            except (KafkaError, Unreachable) as error:
                last = error
                # If no broker has responded yet, the address is wrong or the cluster is down: fail at once.
                if isinstance(error, Unreachable):
                    retriable = bool(self.nodes) and not isinstance(error, NoResponse)
                else:
                    retriable = is_retriable(error.code)
                if not retriable or time.monotonic() > deadline:
                    raise
                refused(error)
            self._topics.clear()
            try:
                time.sleep(self._deadline.left(pause_s))
            except OutOfTime:
                raise self._deadline.out_of_time(last) from None
            pause_s = min(2 * pause_s, RETRY_PAUSE_S)

    def supports(self, api: str) -> bool:
        """Whether the broker announces an API in a version that this client supports."""
        try:
            self.any().version(api)
        except Unsupported:
            return False
        return True

    def another(self) -> Cluster:
        """The same cluster with separate connections, for a request that blocks while others continue."""
        return Cluster(self.bootstrap, self._security)

    # -- close --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
