"""Exchanges as a capture file, for Wireshark and its kin.

What went over the wire: frames with their sizes, each in TCP segments of its own, both directions of each connection, with
a handshake in front of its first frame. Addresses and ports are the real ones; the rest of Ethernet, IP and TCP is made
up, and correct: checksums, sequence numbers, acknowledgements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from ipaddress import IPv4Address, IPv6Address, ip_address
from operator import itemgetter
from struct import Struct
from typing import Final

from lab.trace.exchange import Exchange, Outcome
from protocol.slotted import slotted

SEGMENT_BYTES_MAX: Final = 32 * 1024
SNAPSHOT_BYTES: Final = 256 * 1024
DEFAULT_PORT: Final = 9092
"""Where a connection has no port of its own: one that never was a socket."""
EPHEMERAL_PORT: Final = 49152

Address = IPv4Address | IPv6Address

_US_PER_S: Final = 1_000_000
_ETHERNET: Final = 1
_FILE: Final = Struct("<IHHiIII")
_PACKET: Final = Struct("<IIII")
_IPV4: Final = Struct(">BBHHHBBH4s4s")
_IPV6: Final = Struct(">IHBB16s16s")
_TCP: Final = Struct(">HHIIBBHHH")
_FRAME_SIZE: Final = Struct(">i")
_NODE_MAC, _PEER_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
_IPV4_TYPE, _IPV6_TYPE = b"\x08\x00", b"\x86\xdd"
_TCP_PROTOCOL: Final = 6
_DONT_FRAGMENT: Final = 0x4000
_SYN, _PSH, _ACK = 2, 8, 16
_TCP_HEADER_BYTES: Final = 20
_WINDOW: Final = 65535
_HANDSHAKE: Final = 3


def pcap(exchanges: Iterable[Exchange]) -> Iterator[bytes]:
    """A pcap file in pieces (``application/vnd.tcpdump.pcap``), packets in the order of time.

    An answer that a rule kept back never was on the wire and is not in the file. Of a frame that the trace has cut the
    packets are there, and say that the rest was not captured.
    """
    yield _FILE.pack(0xA1B2C3D4, 2, 4, 0, 0, SNAPSHOT_BYTES, _ETHERNET)
    flows: dict[object, _Flow] = {}
    for time_us, _, exchange, is_answer in sorted(_sent(exchanges), key=itemgetter(0, 1)):
        key = (exchange.node_id, exchange.connection_id, exchange.ends)
        flow = flows.get(key)
        if flow is None:
            flow = flows[key] = _Flow.of(exchange)
            yield from flow.handshake(time_us)
        if is_answer:
            assert exchange.answer is not None
            yield from flow.frame(time_us, exchange.answer, exchange.answer_bytes, from_peer=False)
        else:
            yield from flow.frame(time_us, exchange.request, exchange.request_bytes, from_peer=True)


def _sent(exchanges: Iterable[Exchange]) -> Iterator[tuple[int, int, Exchange, bool]]:
    """Each frame that was sent: when, its place among those of the same time, and whether it is an answer."""
    for exchange in exchanges:
        yield exchange.arrived_us, 2 * exchange.number, exchange, False
        if exchange.answered_us is not None and exchange.outcome is Outcome.ANSWERED:
            yield exchange.answered_us, 2 * exchange.number + 1, exchange, True


@slotted
class _Side:
    """One end of a connection."""

    mac: bytes
    address: Address
    port: int
    sequence: int
    packets: int = 0


@slotted
class _Flow:
    peer: _Side
    node: _Side
    _is_ipv4: bool = field(init=False)

    def __post_init__(self) -> None:
        self._is_ipv4 = self.node.address.version == 4

    @classmethod
    def of(cls, exchange: Exchange) -> _Flow:
        peer_host, peer_port, host, port = exchange.ends
        peer_address, address = _of_one_family(_address(peer_host), _address(host))
        # Two connections may have had the same ports, one after the other: their numbers keep them apart.
        number = exchange.node_id * 7919 + exchange.connection_id
        first_sequence = number * 1_000_003 & 0x7FFF_FFFF
        ephemeral = EPHEMERAL_PORT + number % (65536 - EPHEMERAL_PORT)
        return cls(
            _Side(_PEER_MAC, peer_address, peer_port or ephemeral, first_sequence),
            _Side(_NODE_MAC, address, port or DEFAULT_PORT, first_sequence ^ 0x5555_5555),
        )

    def handshake(self, before_us: int) -> Iterator[bytes]:
        """The connection may be older than the trace: it begins just before its first frame."""
        peer, node = self.peer, self.node
        yield self._packet(before_us - _HANDSHAKE, peer, node, _SYN)
        peer.sequence = _advanced(peer, 1)
        yield self._packet(before_us - _HANDSHAKE + 1, node, peer, _SYN | _ACK)
        node.sequence = _advanced(node, 1)
        yield self._packet(before_us - _HANDSHAKE + 2, peer, node, _ACK)

    def frame(self, time_us: int, frame: bytes, size: int, *, from_peer: bool) -> Iterator[bytes]:
        """A frame of ``size`` bytes, of which ``frame`` is what was kept."""
        sender, receiver = (self.peer, self.node) if from_peer else (self.node, self.peer)
        data = _FRAME_SIZE.pack(size) + frame
        end = _FRAME_SIZE.size + size
        is_whole = len(frame) == size
        for start in range(0, end, SEGMENT_BYTES_MAX):
            length = min(SEGMENT_BYTES_MAX, end - start)
            flags = _ACK | _PSH if start + length == end else _ACK
            # Of a frame that is not whole only the first packet has content, and less than it should: then a reader
            # decodes what is there, instead of waiting for the rest.
            kept = data[start : start + length] if is_whole else data[: length - 1] if start == 0 else b""
            yield self._packet(time_us, sender, receiver, flags, kept, length)
            sender.sequence = _advanced(sender, length)

    def _packet(
        self, time_us: int, sender: _Side, receiver: _Side, flags: int, kept: bytes = b"", length: int = 0
    ) -> bytes:
        """A packet with ``length`` bytes of payload, the first of which were kept."""
        packet = b"".join(
            (self._ip(sender, receiver, length), _tcp(sender, receiver, flags, kept, length), kept)
        )
        sender.packets += 1
        head = receiver.mac + sender.mac + (_IPV4_TYPE if self._is_ipv4 else _IPV6_TYPE)
        captured = len(head) + len(packet)
        seconds, microseconds = divmod(time_us, _US_PER_S)
        there = _PACKET.pack(seconds, microseconds, captured, captured + length - len(kept))
        return there + head + packet

    def _ip(self, sender: _Side, receiver: _Side, length: int) -> bytes:
        source, target = sender.address.packed, receiver.address.packed
        size = _TCP_HEADER_BYTES + length
        if not self._is_ipv4:
            return _IPV6.pack(6 << 28, size, _TCP_PROTOCOL, 64, source, target)
        identification = sender.packets & 0xFFFF
        fields = (0x45, 0, 20 + size, identification, _DONT_FRAGMENT, 64, _TCP_PROTOCOL)
        checksum = _checksum(_IPV4.pack(*fields, 0, source, target))
        return _IPV4.pack(*fields, checksum, source, target)


def _tcp(sender: _Side, receiver: _Side, flags: int, kept: bytes, length: int) -> bytes:
    acknowledged = receiver.sequence if flags & _ACK else 0
    fields = (sender.port, receiver.port, sender.sequence, acknowledged, 5 << 4, flags, _WINDOW)
    header = _TCP.pack(*fields, 0, 0)
    # The pseudo header: its fields are wider in IPv6, and sum up to the same.
    pseudo = b"".join(
        (
            sender.address.packed,
            receiver.address.packed,
            _TCP_PROTOCOL.to_bytes(4, "big"),
            (_TCP_HEADER_BYTES + length).to_bytes(4, "big"),
        )
    )
    return _TCP.pack(*fields, _checksum(pseudo + header + kept), 0)


def _advanced(side: _Side, count: int) -> int:
    return side.sequence + count & 0xFFFF_FFFF


def _checksum(data: bytes) -> int:
    """The internet checksum (RFC 1071): modulo 2^16 - 1 the whole is one big number in base 2^16."""
    if len(data) % 2:
        data += b"\0"
    total = int.from_bytes(data, "big") % 0xFFFF
    # Of a sum that is not zero the remainder 0 stands for 0xffff; its complement is 0.
    return ~(total or 0xFFFF) & 0xFFFF


def _address(host: str) -> Address:
    """As it is, an IPv4 address in IPv6 clothes undressed; what is no address becomes the loopback one."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return IPv4Address("127.0.0.1")
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _of_one_family(one: Address, other: Address) -> tuple[Address, Address]:
    if one.version == other.version:
        return one, other
    return _as_ipv6(one), _as_ipv6(other)


def _as_ipv6(address: Address) -> IPv6Address:
    return address if isinstance(address, IPv6Address) else IPv6Address(f"::ffff:{address}")
