"""Captures, read by a reader of the test's own, and by tshark if it is installed."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
import uuid
from collections import defaultdict
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab.trace.exchange import Ends, Exchange, Outcome
from lab.trace.pcap import SEGMENT_BYTES_MAX, pcap
from protocol.batch import build_batch
from protocol.codec import client_codec, request_codec
from protocol.frame import request_header, response_header
from protocol.messages.index import APIS
from protocol.versions import WireField, at_version, versions_of
from tests.lab.trace.conftest import TracedBroker
from tests.support.deadlines import HANG_S

TSHARK = shutil.which("tshark")
needs_tshark = pytest.mark.tshark

SYN, ACK = 2, 16
IPV4, IPV6 = 0x0800, 0x86DD

# APIs whose frames tshark 4.0 reports as malformed although they are not.
MISREAD_BY_TSHARK = {
    # tshark reads a length of two bytes before a field of type bytes. In versions that are not flexible it has four bytes.
    "JoinGroup",
    "SyncGroup",
    "DescribeGroups",
    "SaslAuthenticate",
    # tshark reads a list of broker ids where there is a list of lists.
    "CreatePartitions",
    "CreateTopics",
    # tshark does not expect the throttle time at the start of the response.
    "DeleteTopics",
}


class Packet(NamedTuple):
    """One packet of the file, whose checksums have been verified."""

    time_us: int
    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    acknowledged: int
    flags: int
    payload: bytes
    missing: int
    """The number of bytes that were sent but not captured."""


def packets(data: bytes) -> list[Packet]:
    magic, major, minor, _, _, snapshot, link = struct.unpack_from("<IHHiIII", data)
    assert (magic, major, minor, link) == (0xA1B2C3D4, 2, 4, 1)
    found, at = [], 24
    while at < len(data):
        seconds, microseconds, captured, original = struct.unpack_from("<IIII", data, at)
        assert captured <= min(original, snapshot)
        raw = data[at + 16 : at + 16 + captured]
        assert len(raw) == captured
        found.append(packet(raw, seconds * 1_000_000 + microseconds, original - captured))
        at += 16 + captured
    assert at == len(data)
    return found


def packet(raw: bytes, time_us: int, missing: int) -> Packet:
    (kind,) = struct.unpack_from(">H", raw, 12)
    if kind == IPV4:
        header, tcp = raw[14:34], raw[34:]
        assert header[0] == 0x45
        assert ones_sum(header) == 0xFFFF
        assert struct.unpack_from(">H", header, 2)[0] == 20 + len(tcp) + missing
        addresses = header[12:16], header[16:20]
        protocol = header[9]
    else:
        assert kind == IPV6
        header, tcp = raw[14:54], raw[54:]
        assert header[0] >> 4 == 6
        assert struct.unpack_from(">H", header, 4)[0] == len(tcp) + missing
        addresses = header[8:24], header[24:40]
        protocol = header[6]
    assert protocol == 6
    pseudo = b"".join(addresses) + struct.pack(">II", 6, len(tcp) + missing)
    if not missing:
        assert ones_sum(pseudo + tcp) == 0xFFFF
    source_port, target_port, sequence, acknowledged, offset, flags = struct.unpack_from(">HHIIBB", tcp)
    assert offset == 5 << 4
    source, target = (str(ip_address(address)) for address in addresses)
    return Packet(
        time_us,
        (source, source_port),
        (target, target_port),
        sequence,
        acknowledged,
        flags,
        tcp[20:],
        missing,
    )


def ones_sum(data: bytes) -> int:
    """The one's complement sum of the 16-bit words. The sum is 0xffff if the data contain a correct checksum."""
    total = 0
    for (word,) in struct.iter_unpack(">H", data + b"\0" * (len(data) % 2)):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return total


def streams(found: list[Packet]) -> dict[tuple[Any, Any], bytes]:
    """(source, target) -> the bytes sent, reassembled as by TCP, with zeros for bytes that were not captured.

    Fails if there is a gap or a wrong acknowledgement.
    """
    sent: defaultdict[tuple[Any, Any], bytearray] = defaultdict(bytearray)
    first: dict[tuple[Any, Any], int] = {}
    for each in found:
        here, there = (each.source, each.target), (each.target, each.source)
        if each.flags & SYN:
            first[here] = each.sequence + 1
        else:
            assert each.sequence == (first[here] + len(sent[here])) & 0xFFFF_FFFF
            sent[here] += each.payload + b"\0" * each.missing
        if each.flags & ACK:
            assert each.acknowledged == (first[there] + len(sent[there])) & 0xFFFF_FFFF
    return {key: bytes(data) for key, data in sent.items()}


def frames(stream: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(stream):
        (size,) = struct.unpack_from(">i", stream, at)
        found.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(stream)
    return found


CLIENT, NODE = ("127.0.0.1", 50_001), ("127.0.0.1", 9092)


def exchange(
    number: int,
    request: bytes,
    answer: bytes | None,
    *,
    ends: Ends | None = None,
    connection_id: int = 1,
    outcome: Outcome = Outcome.ANSWERED,
    api_key: int = 18,
    api_version: int = 0,
) -> Exchange:
    at_ms = 1_700_000_000_000 + number
    return Exchange(
        number=number,
        node_id=1,
        connection_id=connection_id,
        ends=ends or Ends(*CLIENT, *NODE),
        listener="PLAINTEXT",
        api_key=api_key,
        api_version=api_version,
        correlation_id=number,
        client_id="c",
        transactions=(),
        arrived_ms=at_ms,
        arrived_us=at_ms * 1000,
        request=request,
        request_bytes=len(request),
        answer=answer,
        answer_bytes=len(answer or b""),
        answered_ms=at_ms,
        answered_us=at_ms * 1000 + 250,
        outcome=outcome,
    )


def written(*exchanges: Exchange) -> list[Packet]:
    return packets(b"".join(pcap(exchanges)))


def test_a_connection_begins_with_a_handshake_and_carries_both_directions() -> None:
    found = written(exchange(1, b"ask", b"answer"), exchange(2, b"ask more", b"so be it"))
    assert [each.flags & (SYN | ACK) for each in found[:3]] == [SYN, SYN | ACK, ACK]
    assert streams(found) == {
        (CLIENT, NODE): b"\0\0\0\x03ask\0\0\0\x08ask more",
        (NODE, CLIENT): b"\0\0\0\x06answer\0\0\0\x08so be it",
    }
    times = [each.time_us for each in found]
    assert times == sorted(times)
    assert times[3:5] == [1_700_000_000_001_000, 1_700_000_000_001_250]


def test_an_answer_that_was_kept_back_never_was_on_the_wire() -> None:
    found = written(
        exchange(1, b"ask", b"lost", outcome=Outcome.ANSWER_LOST), exchange(2, b"again", b"heard")
    )
    assert frames(streams(found)[NODE, CLIENT]) == [b"heard"]
    assert frames(streams(found)[CLIENT, NODE]) == [b"ask", b"again"]


@pytest.mark.parametrize("size", [SEGMENT_BYTES_MAX - 4, SEGMENT_BYTES_MAX, 5 * SEGMENT_BYTES_MAX + 1])
def test_a_large_frame_takes_several_packets(size: int) -> None:
    request = random.Random(size).randbytes(size)
    assert frames(streams(written(exchange(1, request, b"x")))[CLIENT, NODE]) == [request]


def test_of_a_cut_frame_the_capture_says_what_is_missing() -> None:
    cut = exchange(1, b"beginning", b"answer")
    cut.request_bytes = 3 * SEGMENT_BYTES_MAX
    found = written(cut, exchange(2, b"next", b"answer"))
    stream = streams(found)[CLIENT, NODE]
    assert stream[:13] == struct.pack(">i", 3 * SEGMENT_BYTES_MAX) + b"beginning"
    assert frames(stream)[1] == b"next"
    assert sum(each.missing for each in found) == 3 * SEGMENT_BYTES_MAX - len(b"beginning")


def test_addresses_of_version_6_are_kept_and_mixed_ones_meet_there() -> None:
    one = exchange(1, b"ask", b"answer", ends=Ends("::1", 50_000, "::1", 9092))
    mixed = exchange(2, b"ask", b"answer", ends=Ends("127.0.0.1", 50_000, "::1", 9092), connection_id=2)
    mapped = exchange(
        3, b"a", b"b", ends=Ends("::ffff:10.0.0.1", 50_000, "::ffff:10.0.0.2", 9092), connection_id=3
    )
    hosts = {each.source[0] for each in written(one)}
    assert hosts == {"::1"}
    assert {each.source[0] for each in written(mixed)} == {str(ip_address("::ffff:127.0.0.1")), "::1"}
    assert {each.source[0] for each in written(mapped)} == {"10.0.0.1", "10.0.0.2"}


def test_connections_that_follow_each_other_on_the_same_ports_are_told_apart() -> None:
    found = written(exchange(1, b"one", b"1"), exchange(2, b"two", b"2", connection_id=2))
    begins = [each.sequence for each in found if each.flags & (SYN | ACK) == SYN]
    assert len(set(begins)) == 2


def test_a_connection_without_sockets_gets_ports_of_its_own() -> None:
    ends = Ends("", 0, "", 0)
    found = written(
        exchange(1, b"one", b"1", ends=ends), exchange(2, b"two", b"2", ends=ends, connection_id=2)
    )
    clients = {each.source for each in found if each.target[1] == 9092}
    assert len(clients) == 2


# -- tshark ---------------------------------------------------------------------------------------------------------

# The newest version of each API that Wireshark 4.0 (Debian 12) knows. Later releases know more. For a newer version it reads
# the header, and then decodes the rest in the layout of an older version, so that output is not compared.
KNOWN_TO_TSHARK = {
    0: 8, 1: 11, 2: 5, 3: 9, 8: 8, 9: 7, 10: 3, 11: 7, 12: 4, 13: 4, 14: 5, 15: 5, 16: 3, 17: 1, 18: 3, 19: 5, 20: 4,
    21: 1, 22: 3, 23: 3, 24: 1, 25: 1, 26: 1, 27: 0, 28: 3, 32: 2, 33: 1, 36: 1, 37: 2, 42: 2, 47: 0,
}  # fmt: skip


class Line(NamedTuple):
    """tshark's fields of one Kafka frame."""

    api_key: int | None
    """The API key that tshark shows, None for a response to a request whose version tshark does not know."""
    correlation_id: int
    is_request: bool
    malformed: bool
    info: str


def tshark(path: Path, *ports: int) -> list[Line]:
    assert TSHARK is not None
    fields = ["kafka.api_key", "kafka.correlation_id", "tcp.dstport", "_ws.malformed", "_ws.col.Info"]
    arguments = [argument for name in fields for argument in ("-e", name)]
    decode = [argument for port in ports for argument in ("-d", f"tcp.port=={port},kafka")]
    run = subprocess.run(
        [TSHARK, "-r", str(path), *decode, "-Y", "kafka", "-T", "fields", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    lines = []
    for text in run.stdout.splitlines():
        # For an ApiVersions response tshark prints the field once for each API.
        key, correlation_id, port, malformed, info = text.split("\t")
        api_key = int(key.split(",")[0]) if key else None
        lines.append(Line(api_key, int(correlation_id), int(port) in ports, bool(malformed), info))
    return lines


RECORDS = build_batch([(1, b"k", b"v"), (2, None, b"w")], producer_id=7, producer_epoch=0, base_sequence=3)


def sample(shape: Any) -> Any:
    """A message of one version with a value in every field, as a client or a broker could send it."""
    return shape.__union__(**{field.name: sample_field(field) for field in shape.__wire__})


def sample_field(field: WireField) -> Any:
    value = sample(field.nested) if field.kind == "struct" else SAMPLES.get(field.kind, 1)
    if field.name.endswith("error_code"):
        value = 0
    return [value, value] if field.is_array else value


SAMPLES: dict[str, Any] = {
    "string": "orders",
    "bytes": b"some bytes",
    "records": RECORDS,
    "uuid": uuid.UUID(int=77),
    "bool": True,
    "float64": 0.5,
}


@needs_tshark
def test_tshark_lists_every_api_and_version_with_its_correlation_id(tmp_path: Path) -> None:
    made: list[Any] = []
    for key in APIS:
        for version in versions_of(key):
            number = len(made) + 1
            request = b"".join(client_codec(key, version).encode(sample(at_version(key, version, "request"))))
            answer = b"".join(
                request_codec(key, version).encode(sample(at_version(key, version, "response")))
            )
            made.append(
                exchange(
                    number,
                    request_header(key, version, number, "c") + request,
                    response_header(key, version, number) + answer,
                    api_key=key,
                    api_version=version,
                    connection_id=number,
                    ends=Ends("127.0.0.1", 20_000 + number, *NODE),
                )
            )
    path = tmp_path / "all.pcap"
    path.write_bytes(b"".join(pcap(made)))
    lines = tshark(path, 9092)
    assert [(line.correlation_id, line.is_request) for line in lines] == [
        (each.number, is_request) for each in made for is_request in (True, False)
    ]
    assert [line.api_key for line in lines if line.is_request] == [each.api_key for each in made]
    known = {each.number: each for each in made if each.api_version <= KNOWN_TO_TSHARK.get(each.api_key, -1)}
    wrong = [
        f"{known[line.correlation_id].api} v{known[line.correlation_id].api_version}: {line.info}"
        for line in lines
        if line.correlation_id in known
        and (line.malformed or line.api_key is None)
        and known[line.correlation_id].api not in MISREAD_BY_TSHARK
    ]
    assert "\n".join(wrong) == ""


@needs_tshark
async def test_tshark_reads_what_a_client_and_the_broker_said(broker: TracedBroker, tmp_path: Path) -> None:
    broker.trace.start()
    async with broker.producer("tx") as producer:
        await producer.begin_transaction()
        await producer.send("orders", b"x" * 100_000, partition=0)
        await producer.send("orders", b"y", partition=1)
        await producer.commit_transaction()
    exchanges = broker.trace.entries()
    path = tmp_path / "transaction.pcap"
    path.write_bytes(b"".join(pcap(exchanges)))
    lines = tshark(path, broker.port)
    assert not [line for line in lines if line.malformed]
    asked = [(line.api_key, line.correlation_id) for line in lines if line.is_request]
    assert asked == [(each.api_key, each.correlation_id) for each in exchanges]
    assert len(lines) == 2 * len(exchanges)
    assert "Kafka Produce v7 Request" in [line.info.strip() for line in lines]
