"""Markers between three nodes are WriteTxnMarkers requests, which the trace's lines, captures and timelines show."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from broker.net.connection import Connection
from lab.trace.filters import TraceFilter
from lab.trace.lines import text_line
from lab.trace.pcap import pcap
from lab.trace.reading import timeline, transactions
from tests.lab.trace.conftest import StartTraced, TracedBroker
from tests.lab.trace.test_pcap import needs_tshark, packets, streams, tshark

WRITE_TXN_MARKERS = 27
PARTITIONS = 6


@pytest.fixture
async def broker(start_traced: StartTraced) -> TracedBroker:
    return await start_traced("--nodes", "3", "--topic", f"orders:{PARTITIONS}")


async def commit_everywhere(broker: TracedBroker, transactional_id: str = "orders-tx") -> None:
    async with broker.producer(transactional_id) as producer:
        await producer.begin_transaction()
        for index in range(PARTITIONS):
            await producer.send_and_wait("orders", b"value", partition=index)
        await producer.commit_transaction()
        # The next transaction can begin once the markers of the last one are written in all partitions.
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"value", partition=0)
        await producer.abort_transaction()


async def test_markers_are_seen_as_asked_by_one_node_of_another(broker: TracedBroker) -> None:
    broker.trace.start()
    await commit_everywhere(broker)
    markers = broker.trace.entries(TraceFilter(api_key=WRITE_TXN_MARKERS))
    (coordinator,) = {each.from_node for each in markers}
    assert coordinator is not None
    others = {1, 2, 3} - {coordinator}
    assert {each.node_id for each in markers} == others
    for each in markers:
        line = text_line(each, broker.trace.names)
        assert f"node {each.node_id} < node {coordinator} WriteTxnMarkers" in line
        assert "-> ok" in line
    (known,) = transactions(broker.cluster.running_nodes())
    assert known["coordinator"] == coordinator


async def test_a_timeline_has_each_marker_with_the_node_that_wrote_it(broker: TracedBroker) -> None:
    broker.trace.start()
    await commit_everywhere(broker)
    told = (await timeline(broker.cluster.running_nodes(), "orders-tx", broker.trace)).to_json()
    first = [event for event in told["events"] if event["transaction"] == 1]
    topic = broker.cluster.metadata.topic("orders")
    assert topic is not None
    leaders = {state.index: state.leader for state in topic.partitions}
    assert len(set(leaders.values())) == 3
    for kind in ("batch", "marker"):
        found = {
            event["partition"]: event["node"]
            for event in first
            if event["kind"] == kind and event["topic"] == "orders"
        }
        assert found == leaders
    exchanges = [event for event in first if event["kind"] == "exchange"]
    between = {event["node"] for event in exchanges if event["api"] == "WriteTxnMarkers"}
    (coordinator,) = {event["from_node"] for event in exchanges if event["api"] == "WriteTxnMarkers"}
    assert between == {1, 2, 3} - {coordinator}


async def test_a_timeline_is_read_from_another_replica_while_the_leader_is_gone(broker: TracedBroker) -> None:
    await commit_everywhere(broker)
    nodes = broker.cluster.running_nodes()
    whole = (await timeline(nodes, "orders-tx")).to_json()
    for gone in (1, 2, 3):
        rest = [node for node in nodes if node.node_id != gone]
        told = (await timeline(rest, "orders-tx")).to_json()
        assert gone not in {event["node"] for event in told["events"]}
        assert [each["verdict"] for each in told["transactions"]] == ["committed", "aborted"]
        states = [event["state"] for event in told["events"] if event["kind"] == "state"]
        assert states == [event["state"] for event in whole["events"] if event["kind"] == "state"]


async def test_a_capture_has_the_markers_between_the_nodes_own_ports(broker: TracedBroker) -> None:
    broker.trace.start()
    await commit_everywhere(broker)
    markers = broker.trace.entries(TraceFilter(api_key=WRITE_TXN_MARKERS))
    ports = {runtime.listeners[0].port for runtime in broker.cluster.nodes.values()}
    found = packets(b"".join(pcap(markers)))
    assert {each.target[1] for each in found if each.payload and each.target[1] in ports} == {
        runtime.listeners[0].port
        for runtime in broker.cluster.nodes.values()
        if runtime.node_id in {each.node_id for each in markers}
    }


class Wire:
    """The bytes that connections read from their sockets and write to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.streams: defaultdict[tuple[Any, Any], bytes] = defaultdict(bytes)
        made, updated = Connection.connection_made, Connection.buffer_updated

        def connection_made(connection: Connection, transport: Any) -> None:
            made(connection, Tap(transport, self.streams))  # type: ignore[arg-type]

        def buffer_updated(connection: Connection, count: int) -> None:
            landed = connection.get_buffer(count)[:count]  # the kernel has written the received bytes there
            self.streams[(connection.host, connection.port), connection.address] += bytes(landed)
            updated(connection, count)

        monkeypatch.setattr(Connection, "connection_made", connection_made)
        monkeypatch.setattr(Connection, "buffer_updated", buffer_updated)


class Tap:
    """A transport that records what is written to it."""

    def __init__(self, transport: Any, streams: defaultdict[tuple[Any, Any], bytes]) -> None:
        self._transport = transport
        self._streams = streams
        self._key = transport.get_extra_info("sockname")[:2], transport.get_extra_info("peername")[:2]

    def write(self, data: bytes) -> None:
        self._streams[self._key] += bytes(data)
        self._transport.write(data)

    def writelines(self, chunks: list[bytes]) -> None:
        self._streams[self._key] += b"".join(chunks)
        self._transport.writelines(chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_the_capture_is_what_the_sockets_carried(
    start_traced: StartTraced, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(monkeypatch)
    broker = await start_traced("--nodes", "3", "--topic", f"orders:{PARTITIONS}")
    broker.trace.start()
    await commit_everywhere(broker)
    captured = streams(packets(b"".join(pcap(broker.trace.entries()))))
    assert captured == {key: data for key, data in wire.streams.items() if data}
    ports = {runtime.listeners[0].port for runtime in broker.cluster.nodes.values()}
    between = [each for each in broker.trace.entries() if each.api_key == WRITE_TXN_MARKERS]
    assert between
    assert all(each.ends.port in ports and each.ends.peer_port not in ports for each in between)


@needs_tshark
async def test_tshark_lists_the_markers_between_nodes(broker: TracedBroker, tmp_path: Path) -> None:
    broker.trace.start()
    await commit_everywhere(broker)
    exchanges = broker.trace.entries()
    path = tmp_path / "markers.pcap"
    path.write_bytes(b"".join(pcap(exchanges)))
    ports = [runtime.listeners[0].port for runtime in broker.cluster.nodes.values()]
    lines = [line for line in tshark(path, *ports) if line.is_request]
    asked = sorted((line.api_key or 0, line.correlation_id) for line in lines)
    assert asked == sorted((each.api_key, each.correlation_id) for each in exchanges)
    assert any("WriteTxnMarkers" in line.info for line in lines)
