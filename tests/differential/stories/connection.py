"""Frames, headers, order and bad input: Kafka's response each time, and no effect on other connections."""

from __future__ import annotations

import struct
from typing import Any

from tests.differential.stories.versions import RANGES
from tests.differential.story import WAIT, Pending, Story, story
from tests.support import raw

METADATA_NONE: dict[str, Any] = {"topics": []}


@story("connection")
def garbage(s: Story) -> None:
    for number, data in enumerate((b"\xff" * 20, b"GET / HTTP/1.1\r\n\r\n", bytes(range(64)), b"\x00" * 16)):
        s.raw(f"garbage frame {number}", data, on=f"c{number}")
    s.raw("HTTP without a frame", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", frame=False, on="http")
    s.alive()


@story("connection")
def sizes(s: Story) -> None:
    """A size below 0 or above socket.request.max.bytes (104857600) closes the connection before the body arrives."""
    for size in (2**31 - 1, 104857601, -1, -(2**31)):
        s.raw(f"size {size}", struct.pack(">i", size), frame=False, on=f"c{size}")
    s.raw("size 0", struct.pack(">i", 0), frame=False, on="zero")
    s.raw("size 104857600, then nothing", struct.pack(">i", 104857600), frame=False, on="large", wait=0.5)
    s.raw("half a size", b"\x00\x00", frame=False, on="half", wait=0.5)
    s.alive()


@story("connection")
def truncated(s: Story) -> None:
    """A frame that is truncated by the end of the connection is ignored."""
    frame = raw.encode_request("metadata", 1, METADATA_NONE, 7)
    wire = s.wire("cut")
    wire.send_bytes(struct.pack(">i", len(frame)) + frame[:-3])
    s.raw("the rest of a frame never comes", b"", frame=False, on="cut", wait=0.5)
    wire.half_close()
    s.raw("and the sender closes", b"", frame=False, on="cut2", wait=0.3)
    s.alive()


@story("connection")
def short_headers(s: Story) -> None:
    whole = raw.encode_header(3, 1, 7, "raw", False)
    for size in (0, 1, 2, 3, 4, 7, 8, 9, 11):
        s.raw(f"header cut to {size} bytes", whole[:size], on=f"c{size}")
    s.raw("client id longer than the frame", whole[:8] + struct.pack(">h", 100) + b"raw", on="long")
    odd = whole[:8] + struct.pack(">h", -2) + struct.pack(">i", 0)
    s.raw_request("client id of length -2", "metadata", 1, odd, on="minus")
    s.raw("flexible header without tags", raw.encode_header(3, 9, 7, "raw", False), on="tags")
    s.alive()


@story("connection")
def unknown_apis(s: Story) -> None:
    """A request with an unknown API key, or with that of an API that is not for clients, closes its connection."""
    for key in (999, -1, 32767, 4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 93, 200):
        s.raw(f"key {key} v0", raw.encode_header(key, 0, 7, "raw", False) + bytes(8), on=f"c{key}")
    s.alive()


@story("connection")
def unsupported_versions(s: Story) -> None:
    """A version below the lowest or above the highest closes the connection without a response, except for ApiVersions."""
    for api, (low, high) in RANGES.items():
        if api != "api_versions":
            for v in sorted({low - 1, high + 1}):
                frame = raw.encode_header(raw.API_KEYS[api], v, 7, "raw", v > high) + bytes(16)
                s.raw(f"{api} v{v}", frame, on=f"{api}{v}")
    for v in (0, 1, 99, -5):
        s.raw(f"produce v{v}", raw.encode_header(0, v, 7, "raw", False) + bytes(16), on=f"p{v}")
    s.alive()


@story("connection")
def malformed_bodies(s: Story) -> None:
    """A body that does not parse closes the connection."""
    old, new = raw.encode_header(3, 1, 7, "raw", False), raw.encode_header(3, 9, 7, "raw", True)
    flags = b"\x00\x00\x00\x00"
    cases = {
        "no body": old,
        "array of 2^31-1": old + struct.pack(">i", 2**31 - 1),
        "array of 2^24": old + struct.pack(">i", 1 << 24) + b"\x00\x01a",
        "array of -2": old + struct.pack(">i", -2),
        "string longer than the frame": old + struct.pack(">ih", 1, 500) + b"abc",
        "null string": old + struct.pack(">ih", 1, -1),
        "string of length -2": old + struct.pack(">ih", 1, -2),
        "compact array of 2^31": new + raw.uvarint(2**31) + flags,
        "compact array of 2^24": new + raw.uvarint(2**24) + flags,
        "uvarint of six bytes": new + b"\xff\xff\xff\xff\xff\x7f" + flags,
        "compact string longer than the frame": new + b"\x02\x7fabc\x00" + flags,
        "null compact string": new + b"\x02\x00\x00" + flags,
        "tag section cut": new + b"\x01\x01\x00\x00",
        "tag longer than the frame": new + b"\x01\x01\x00\x00\x01\x05\x7fx",
        "noise": new + b"\xfe" * 30,
    }
    for label, frame in cases.items():
        version = 9 if frame.startswith(new) else 1
        s.raw_request(f"metadata, {label}", "metadata", version, frame, on=label)
    s.alive()


@story("connection")
def odd_bodies(s: Story) -> None:
    """Request bodies with extra bytes, unusual booleans and unordered tags are parsed."""
    old, new = raw.encode_header(3, 1, 7, "raw", False), raw.encode_header(3, 9, 7, "raw", True)
    empty = struct.pack(">i", 0)
    s.raw_request("metadata v1, 4 bytes after its end", "metadata", 1, old + empty + b"tail")
    s.raw_request("metadata v9, 4 bytes after its end", "metadata", 9, new + b"\x01\x00\x00\x00\x00tail")
    s.raw_request("metadata v9, bool 2", "metadata", 9, new + b"\x01\x02\x02\x02\x00")
    s.raw_request(
        "metadata v9, duplicate tags", "metadata", 9, new + b"\x01\x00\x00\x00\x02\x05\x01x\x05\x01x"
    )
    s.raw_request(
        "metadata v9, tags out of order", "metadata", 9, new + b"\x01\x00\x00\x00\x02\x05\x01x\x03\x01x"
    )
    s.alive()


@story("connection")
def text_that_is_not_utf8(s: Story) -> None:
    old = raw.encode_header(3, 4, 7, "raw", False)
    s.raw_request("topic name ff fe", "metadata", 4, old + struct.pack(">ih", 1, 2) + b"\xff\xfe\x00")
    s.raw_request(
        "client id ff", "metadata", 4, struct.pack(">hhih", 3, 4, 7, 1) + b"\xff" + bytes(4) + b"\x00"
    )
    s.alive()


@story("connection")
def unknown_tags(s: Story) -> None:
    """Unknown tagged fields at every level are skipped, large tags and large contents too."""
    t = s.topic()
    tags: dict[str, Any] = {"_tags": {9: b"x" * 300, 100_000: b""}}
    row = {"name": t.name, **tags}
    body = raw.encode_body("metadata", 9, {"topics": [row], "allow_auto_topic_creation": False, **tags})
    frame = raw.encode_header(3, 9, 7, "raw", True, {0: b"zero", 12: b"q" * 200}) + body
    s.raw_request("metadata v9 with tags", "metadata", 9, frame)
    part = {"index": 0, "records": s.batch(1), **tags}
    topics = [{"name": t.name, "partition_data": [part], **tags}]
    s.ask("produce", 9, acks=-1, timeout=1000, topic_data=topics, note="with tags", **tags)


@story("connection")
def largest_counts(s: Story) -> None:
    """More than 1,000,000 elements in an array, or 10,000 tagged fields in a section, close the connection."""
    group = raw.encode_header(16, 4, 7, "raw", True)
    for count in (1_000_000, 1_000_001):
        frame = group + raw.uvarint(count + 1) + b"\x01" * count + b"\x00"
        answer = s.raw_request(
            f"list_groups v4, {count} states", "list_groups", 4, frame, on=f"a{count}", wait=WAIT
        )
        assert answer is None or not answer["groups"]
    for count in (10_000, 10_001):
        tags = {100 + number: b"" for number in range(count)}
        frame = raw.encode_header(16, 4, 7, "raw", True, tags) + b"\x01\x00"
        s.raw_request(f"list_groups v4, {count} tags in the header", "list_groups", 4, frame, on=f"h{count}")
        frame = group + b"\x01" + raw.encode_tags(tags)
        s.raw_request(f"list_groups v4, {count} tags in the body", "list_groups", 4, frame, on=f"b{count}")
    s.alive()


@story("connection")
def correlation_ids(s: Story) -> None:
    """The response has the request's correlation id, whatever its value."""
    for number in (0, -1, 2**31 - 1, -(2**31), 5, 5):
        frame = raw.encode_request("metadata", 1, METADATA_NONE, number)
        s.wire().send_frame(frame)
        answer = s.wire().receive_frame()
        s.put(f"correlation {number}", struct.unpack_from(">i", answer)[0] == number)


@story("connection")
def pipelined(s: Story) -> None:
    """Responses come in the order of the requests, also if these arrive in one packet."""
    frames = [raw.encode_request("metadata", v, METADATA_NONE, 100 + v) for v in range(1, 9)]
    s.wire().send_bytes(b"".join(struct.pack(">i", len(f)) + f for f in frames))
    s.put("8 requests in one packet", [struct.unpack_from(">i", s.wire().receive_frame())[0] for _ in frames])


@story("connection")
def byte_by_byte(s: Story) -> None:
    frame = raw.encode_request("metadata", 1, METADATA_NONE, 7)
    for byte in struct.pack(">i", len(frame)) + frame:
        s.wire().send_bytes(bytes([byte]))
    s.put("answered", struct.unpack_from(">i", s.wire().receive_frame())[0])


@story("connection")
def one_at_a_time(s: Story) -> None:
    """A request waits for an earlier long-poll Fetch on its connection, but not for one on another connection."""
    t = s.topic()
    waiting = s.send("fetch", 4, replica_id=-1, max_wait=700, min_bytes=1, topics=_from(t.name))
    behind = s.send("metadata", 1, topics=[])
    s.alive("other")
    s.take(waiting)
    s.take(behind)


def _from(name: str) -> list[dict[str, object]]:
    return [{"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}]


@story("connection")
def good_then_bad(s: Story) -> None:
    """A malformed request does not prevent the response to a correct request before it on the connection."""
    good = raw.encode_request("metadata", 1, METADATA_NONE, 21)
    bad = raw.encode_header(999, 0, 22, "raw", False)
    s.wire().send_bytes(b"".join(struct.pack(">i", len(f)) + f for f in (good, bad)))
    s.take(Pending("metadata", 1, "main", 21, "the good one"))
    s.raw("then", b"", frame=False)


@story("connection")
def produce_to_nobody(s: Story) -> None:
    """acks=0: the broker sends nothing, so the next response belongs to the next request. An error closes the connection."""
    t = s.topic()
    rows = [{"name": t.name, "partition_data": [{"index": 0, "records": s.batch(1)}]}]
    s.send("produce", 9, acks=0, timeout=1000, topic_data=rows)
    s.ask("metadata", 1, topics=[], note="behind acks=0")
    s.fetch(t)
    wrong = [{"name": s.name("missing"), "partition_data": [{"index": 0, "records": s.batch(1)}]}]
    s.send("produce", 9, acks=0, timeout=1000, topic_data=wrong, on="bad")
    s.raw("acks=0 to an unknown topic", b"", frame=False, on="bad")
    both = [*rows, *wrong]
    s.send("produce", 9, acks=0, timeout=1000, topic_data=both, on="both")
    s.raw("acks=0, one good and one bad partition", b"", frame=False, on="both")
    broken = [{"name": t.name, "partition_data": [{"index": 0, "records": s.batch(1, crc=1)}]}]
    s.send("produce", 9, acks=0, timeout=1000, topic_data=broken, on="crc")
    s.raw("acks=0, bad CRC", b"", frame=False, on="crc")
    s.fetch(t, note="what was kept")
    s.send("produce", 9, acks=0, timeout=1000, topic_data=[], on="none")
    s.raw("acks=0, no topics", b"", frame=False, on="none", wait=0.5)
