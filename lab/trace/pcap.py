"""Formats exchanges as a capture file for Wireshark and similar tools.

The file has the frames with their sizes, each in TCP segments of its own, for both directions of each connection, with a
handshake before the first frame. Addresses and ports are the real ones. The other parts of Ethernet, IP and TCP are
generated, with correct checksums, sequence numbers and acknowledgements.
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
"""Port number for a connection that is not a socket."""
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
    """A pcap file in pieces (``application/vnd.tcpdump.pcap``), with packets in time order.

    A response that a rule has lost was never sent and is not in the file. A frame that the trace has cut has packets that
    are marked as not completely captured.
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
    """Each frame that was sent: (time, order among equal times, exchange, whether it is a response)."""
    for exchange in exchanges:
        yield exchange.arrived_us, 2 * exchange.number, exchange, False
        if exchange.answered_us is not None and exchange.outcome is Outcome.ANSWERED:
            yield exchange.answered_us, 2 * exchange.number + 1, exchange, True


@slotted
class _Side:
    """One end of a TCP connection in the capture file."""

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
        # Two connections may use the same ports one after the other. Their sequence numbers distinguish them.
        number = exchange.node_id * 7919 + exchange.connection_id
        first_sequence = number * 1_000_003 & 0x7FFF_FFFF
        ephemeral = EPHEMERAL_PORT + number % (65536 - EPHEMERAL_PORT)
        return cls(
            _Side(_PEER_MAC, peer_address, peer_port or ephemeral, first_sequence),
            _Side(_NODE_MAC, address, port or DEFAULT_PORT, first_sequence ^ 0x5555_5555),
        )

    def handshake(self, before_us: int) -> Iterator[bytes]:
        """Packets of a handshake just before the first frame: the connection may be older than the trace."""
        peer, node = self.peer, self.node
        yield self._packet(before_us - _HANDSHAKE, peer, node, _SYN)
        peer.sequence = _advanced(peer, 1)
        yield self._packet(before_us - _HANDSHAKE + 1, node, peer, _SYN | _ACK)
        node.sequence = _advanced(node, 1)
        yield self._packet(before_us - _HANDSHAKE + 2, peer, node, _ACK)

    def frame(self, time_us: int, frame: bytes, size: int, *, from_peer: bool) -> Iterator[bytes]:
        """Packets for a frame of ``size`` bytes. ``frame`` is the part that the trace has kept."""
        sender, receiver = (self.peer, self.node) if from_peer else (self.node, self.peer)
        data = _FRAME_SIZE.pack(size) + frame
        end = _FRAME_SIZE.size + size
        is_whole = len(frame) == size
        for start in range(0, end, SEGMENT_BYTES_MAX):
            length = min(SEGMENT_BYTES_MAX, end - start)
            flags = _ACK | _PSH if start + length == end else _ACK
            # For a cut frame only the first packet has content, one byte too short: then Wireshark decodes what there
            # is, and does not wait for the rest.
            kept = data[start : start + length] if is_whole else data[: length - 1] if start == 0 else b""
            yield self._packet(time_us, sender, receiver, flags, kept, length)
            sender.sequence = _advanced(sender, length)

    def _packet(
        self, time_us: int, sender: _Side, receiver: _Side, flags: int, kept: bytes = b"", length: int = 0
    ) -> bytes:
        """A packet with ``length`` bytes of payload. ``kept`` is the part that was captured."""
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
    # The pseudo header. In IPv6 its fields are wider, but give the same sum.
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
    """The internet checksum (RFC 1071), computed as one large number modulo 2^16 - 1."""
    if len(data) % 2:
        data += b"\0"
    total = int.from_bytes(data, "big") % 0xFFFF
    # If the sum is not zero but its remainder is, the remainder counts as 0xffff, whose complement is 0.
    return ~(total or 0xFFFF) & 0xFFFF


def _address(host: str) -> Address:
    """The address, with IPv4-mapped IPv6 as IPv4; the loopback address for text that is not an address."""
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
