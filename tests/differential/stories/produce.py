"""Produce: each check that one node can show, the fields of the response, codecs, times, acks."""

from __future__ import annotations

import uuid
from itertools import product

import cramjam

from tests.differential import batches
from tests.differential.story import Story, Topic, story

HOUR = 3_600_000
UNKNOWN = Topic("no-such-topic-anywhere", uuid.UUID("11111111-2222-3333-4444-555555555555"))


@story("produce")
def transactional_without_id(s: Story) -> None:
    """A transactional batch without a transactional id in the request fails all partitions, also one with a plain
    batch.

    The error is TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    t = s.topic(2)
    pid, epoch = s.producer_id()
    txn = s.batch(1, pid=pid, epoch=epoch, seq=0, txn=True)
    for v in (3, 9, 12, 13):
        s.produce([(t, 0, txn), (t, 1, s.batch(1))], v=v)


@story("produce")
def unknown_topics(s: Story) -> None:
    """Produce creates no topics: it gets UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."""
    t = s.topic()
    for v in (3, 7, 8, 9, 10, 12):
        s.produce(UNKNOWN, s.batch(1), v=v, note="unknown topic")
    s.produce(UNKNOWN, s.batch(1), v=13, note="unknown id")
    for v in (9, 13):
        for partition in (1, -1, 2**31 - 1):
            s.produce(t, s.batch(1), v=v, partition=partition, note=f"partition {partition}")
    s.produce([(t, 0, s.batch(1)), (t, 1, s.batch(1)), (UNKNOWN, 0, s.batch(1))], note="one of three")


@story("produce")
def not_one_batch(s: Story) -> None:
    """Produce without a complete batch, with another format, or with more than one batch gets INVALID_RECORD."""
    t, good = s.topic(), s.batch(1)
    for v in (3, 9, 12):
        s.produce(t, b"", v=v, note="no bytes")
        s.produce(t, good[:-1], v=v, note="last byte missing")
        s.produce(t, good + good, v=v, note="two batches")
    s.produce(t, good[:11], note="11 bytes")
    s.produce(t, good[:60], note="60 bytes")
    s.produce(t, good + good[:20], note="one batch and a piece")
    s.produce(t, batches.old_message(0, s.t0), note="magic 0")
    s.produce(t, batches.old_message(1, s.t0), note="magic 1")
    for magic in (0, 1, 3, -1):
        s.produce(t, s.batch(1, magic=magic), note=f"a v2 batch with magic {magic}")
    s.produce(t, s.batch(1, length=10), note="batchLength 10")
    s.produce(t, s.batch(1, length=0), note="batchLength 0")
    s.produce(t, s.batch(1, length=-1), note="batchLength -1")
    s.fetch(t)


@story("produce")
def codecs(s: Story) -> None:
    t = s.topic()
    for codec in range(5):
        for v in (7, 9):
            s.produce(t, s.batch(3, codec=codec), v=v, note=f"codec {codec}")
    for v in (3, 6):
        s.produce(t, s.batch(3, codec=4), v=v, note="zstd before v7")
        s.produce(t, s.batch(3, codec=3), v=v, note="lz4")
    s.fetch(t)


@story("produce")
def larger_than_decompressed(s: Story) -> None:
    """``max.decompressed.message.bytes`` limits each record in a compressed batch, after its length."""
    t = s.topic(max__decompressed__message__bytes="100")
    for codec in range(5):
        for size in (93, 94):
            batch = s.batch([b"x", b"x" * size, b"x"], keys=[None] * 3, codec=codec)
            s.produce(t, batch, note=f"codec {codec}, {size + 7} bytes")
    s.produce(t, s.batch([b"x" * 93] * 5, keys=[None] * 5, codec=1), note="five of 100 bytes")
    compacted = s.topic(max__decompressed__message__bytes="100", cleanup__policy="compact")
    for codec in range(2):
        s.produce(compacted, s.batch([b"x" * 94], codec=codec), note=f"codec {codec}, compacted")


@story("produce")
def negative_sizes(s: Story) -> None:
    """A record with a negative size in a compressed batch gets INVALID_RECORD."""
    t = s.topic(8)
    for number, (codec, size) in enumerate(product(range(1, 5), (-1, -(2**31)))):
        records = batches.compress(codec, batches.varint(size) + bytes(10))
        batch = s.batch(1, codec=codec, records=records)
        s.produce(t, batch, partition=number, note=f"codec {codec}, size {size}")


@story("produce")
def unknown_codecs(s: Story) -> None:
    t = s.topic()
    for codec in (5, 6, 7):
        s.produce(t, s.batch(1, attributes=codec), note=f"codec {codec}")
    s.fetch(t)


@story("produce-broken")
def compression(s: Story) -> None:
    """Kafka refuses a batch with a correct CRC whose bytes cannot be decompressed."""
    for codec in range(1, 5):
        data = s.batch(1, attributes=codec, records=b"\x00garbage" * 4)
        s.produce(s.topic(), data, note=f"codec {codec}")


@story("produce-broken")
def lz4_with_dependent_blocks(s: Story) -> None:
    """Kafka's decompressor rejects an LZ4 frame with dependent blocks."""
    records = b"".join(batches.record(i, b"v" * 100) for i in range(3))
    s.produce(s.topic(), s.batch(3, attributes=3, records=bytes(cramjam.lz4.compress(records))))


@story("produce-broken")
def records(s: Story) -> None:
    """Kafka refuses a batch with a correct CRC whose records do not parse, or are more or fewer than in its header."""
    good = batches.record(0)
    for note, count, data in (
        ("noise", 1, b"\xff" * 20),
        ("two promised, one there", 2, good),
        ("one promised, two there", 1, good + good),
        ("bytes after the record", 1, good + b"\x00\x00"),
        ("record length -1", 1, batches.varint(-1) + b"\x00" * 8),
        ("record length 2^31-1", 1, batches.varint(2**31 - 1) + b"\x00" * 8),
        ("key length 1000", 1, b"\x18\x00\x00\x00" + batches.varint(1000) + b"\x00" * 8),
        ("header count -1", 1, batches.varint(7) + b"\x00\x00\x00\x01\x01" + batches.varint(-1) + b"\x00"),
        ("header with a null key", 1, batches.varint(8) + b"\x00\x00\x00\x01\x01\x02\x01\x01"),
    ):
        s.produce(s.topic(), s.batch(count, records=data), note=note)


@story("produce-broken")
def where_the_broker_must_look(s: Story) -> None:
    """Broken records for a compacted topic, where the broker has to read them to check for null keys."""
    good = batches.record(0)
    for note, count, data in (
        ("noise", 1, b"\xff" * 20),
        ("two promised, one there", 2, good),
        ("one promised, two there", 1, good + good),
    ):
        s.produce(s.topic(cleanup__policy="compact"), s.batch(count, records=data), note=note)
    for codec in range(1, 5):
        data = s.batch(1, attributes=codec, records=b"\x00garbage" * 4)
        s.produce(s.topic(cleanup__policy="compact"), data, note=f"codec {codec}")


@story("produce")
def offset_deltas(s: Story) -> None:
    """Offset deltas in the batch that are not 0, 1, ... are replaced."""
    t = s.topic()
    s.produce(t, s.batch(2, offset_deltas=[0, 5]), note="0 and 5")
    s.produce(t, s.batch(2, offset_deltas=[1, 0]), note="1 and 0")
    s.fetch(t)
    s.produce(s.topic(), s.batch(2, offset_deltas=[0, 5], codec=1), note="0 and 5, compressed")


@story("produce")
def acks_values(s: Story) -> None:
    t = s.topic(2)
    for acks in (2, -2, 32767):
        s.produce(t, s.batch(1), acks=acks, note=f"acks {acks}")
        s.produce(
            [(t, 0, s.batch(1)), (UNKNOWN, 0, s.batch(1))], acks=acks, v=8, note=f"acks {acks}, unknown topic"
        )
    for acks in (1, -1):
        for timeout in (0, -1, 1):
            s.produce(t, s.batch(1), acks=acks, timeout=timeout, note=f"acks {acks}, timeout {timeout}")


@story("produce")
def internal_topics(s: Story) -> None:
    for name in ("__transaction_state", "__consumer_offsets"):
        answer = s.quiet("metadata", 12, topics=[{"name": name}])
        t = Topic(name, answer["topics"][0]["topic_id"])
        for v in (3, 9, 13):
            s.produce(t, s.batch(1), v=v)


@story("produce")
def min_isr_above_replicas(s: Story) -> None:
    """The effective minimum is min(min.insync.replicas, replicas): one replica with a minimum of 2 succeeds."""
    t = s.topic(min__insync__replicas="2")
    s.produce(t, s.batch(1))


@story("produce")
def base_offset_not_zero(s: Story) -> None:
    t = s.topic()
    for base in (1, -1, 100):
        s.produce(t, s.batch(2, base_offset=base), note=f"base offset {base}")
        s.produce(t, s.batch(2, base_offset=base), v=3, note=f"base offset {base}")
    s.fetch(t)


@story("produce")
def leader_epoch_is_overwritten(s: Story) -> None:
    t = s.topic()
    for epoch in (0, 77, -5):
        s.produce(t, s.batch(1, leader_epoch=epoch), note=f"leader epoch {epoch}")
    s.fetch(t)


@story("produce")
def too_large(s: Story) -> None:
    t = s.topic(max__message__bytes="200")
    for size in (100, 131, 132, 133, 134, 135, 1000):
        data = s.batch([b"x" * size])
        s.produce(t, data, note=f"a batch of {len(data)}")
    s.produce(t, s.batch([b"x" * 1000], codec=1), note="small enough when compressed")
    s.produce(s.topic(), s.batch([b"x" * 1048600]), note="above the default of 1048588")


@story("produce")
def recompressed_too_large(s: Story) -> None:
    """max.message.bytes applies to the stored batch, too."""
    t = s.topic(max__message__bytes="200", compression__type="uncompressed")
    s.produce(t, s.batch([b"x" * 1000], codec=1))


@story("produce")
def larger_than_a_segment(s: Story) -> None:
    t = s.topic(segment__bytes="1048576", max__message__bytes="3000000")
    s.produce(t, s.batch([b"x" * 1_500_000]))


@story("produce")
def crc_wrong(s: Story) -> None:
    t = s.topic()
    for v in (3, 7, 8, 9, 12):
        s.produce(t, s.batch(1, crc=0xDEADBEEF), v=v)
    s.produce(t, s.batch(1, crc=0), acks=1, note="acks 1")


@story("produce")
def counts(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(0), note="no records")
    s.produce(t, s.batch(1, count=0), note="count 0")
    s.produce(t, s.batch(1, count=-1), note="count -1")
    s.produce(t, s.batch(2, count=1), note="count 1 of 2")
    s.produce(t, s.batch(2, last_delta=5), note="lastOffsetDelta 5 with 2 records")
    s.produce(t, s.batch(2, last_delta=0), note="lastOffsetDelta 0 with 2 records")
    s.produce(t, s.batch(1, last_delta=-1, count=0), note="lastOffsetDelta -1, count 0")
    s.produce(t, s.batch(2, last_delta=-7, count=2), note="lastOffsetDelta -7")
    s.produce(t, s.batch(1, last_delta=2**31 - 1, count=1), note="lastOffsetDelta 2^31-1")


@story("produce")
def attributes(s: Story) -> None:
    """A client's batch with the control bit gets INVALID_RECORD.

    The append time bit is cleared. The story also shows whether the delete horizon bit and unused bits are cleared.
    """
    t = s.topic()
    s.produce(t, s.batch(1, attributes=0x20), note="control")
    s.produce(t, s.batch(1, attributes=0x08), note="append time on a create time topic")
    s.produce(t, s.batch(1, attributes=0x40), note="delete horizon")
    s.produce(t, s.batch(1, attributes=0x80), note="bit 7")
    s.produce(t, s.batch(1, attributes=0x4000), note="bit 14")
    s.fetch(t)


@story("produce")
def producer_fields(s: Story) -> None:
    t = s.topic()
    pid, _ = s.producer_id()
    s.produce(t, s.batch(1, pid=pid, epoch=0, seq=-1), note="producer id without a sequence")
    s.produce(t, s.batch(1, pid=pid, epoch=-1, seq=0), note="producer id without an epoch")
    s.produce(t, s.batch(1, pid=-1, epoch=0, seq=0), note="sequence without a producer id")
    s.produce(t, s.batch(1, pid=-7, epoch=0, seq=0), note="producer id -7")
    s.produce(t, s.batch(1, pid=pid, epoch=0, seq=-5), note="sequence -5")
    s.fetch(t)


@story("produce")
def null_keys_on_a_compacted_topic(s: Story) -> None:
    """Null keys on a compacted topic get INVALID_RECORD with the indices of their records.

    Nothing of the batch is written.
    """
    t = s.topic(cleanup__policy="compact")
    for v in (3, 7, 8, 9):
        s.produce(t, s.batch(3, keys=[b"a", None, None]), v=v)
    s.produce(t, s.batch(3, keys=[b"a", None, b"c"], codec=1), note="compressed")
    s.produce(t, s.batch(3, keys=[b"a", b"", b"c"]), note="an empty key is a key")
    s.produce(s.topic(cleanup__policy="compact,delete"), s.batch(1, keys=[None]), note="compact,delete")
    s.fetch(t)


@story("produce")
def timestamps_out_of_bounds(s: Story) -> None:
    """Timestamps out of bounds get INVALID_TIMESTAMP with the indices of their records.

    -1 is always valid. By default a timestamp more than an hour in the future is refused.
    """
    t = s.topic(message__timestamp__before__max__ms=str(HOUR), message__timestamp__after__max__ms=str(HOUR))
    s.produce(t, s.batch(1, ts=s.t0 - 2 * HOUR), note="too old")
    s.produce(t, s.batch(1, ts=s.t0 + 2 * HOUR), note="too new")
    s.produce(t, s.batch(3, ts_deltas=[0, -2 * HOUR, 3 * HOUR]), note="the 2nd and 3rd of three")
    s.produce(t, s.batch(1, ts=-1), note="-1")
    s.produce(t, s.batch(2, ts=s.t0 - 2 * HOUR, codec=1), note="compressed, too old")
    s.produce(t, s.batch(1), note="good")
    plain = s.topic()
    s.produce(plain, s.batch(1, ts=s.t0 + 2 * HOUR), note="two hours ahead, defaults")
    s.produce(plain, s.batch(1, ts=s.t0 - 9 * 24 * HOUR), note="nine days ago, defaults")
    s.produce(plain, s.batch(1, ts=0), note="1970, defaults")
    s.produce(plain, s.batch(1, ts=-5), note="-5, defaults")
    s.fetch(plain)


@story("produce")
def bad_time_and_bad_key(s: Story) -> None:
    """If any of a batch's errors is about a timestamp, the batch gets INVALID_TIMESTAMP."""
    t = s.topic(cleanup__policy="compact")
    s.produce(t, s.batch(3, keys=[None, b"b", b"c"], ts_deltas=[0, 2 * HOUR, 0]))
    s.produce(t, s.batch(3, keys=[None, b"b", b"c"], ts_deltas=[2 * HOUR, 0, 0]), note="one record, both")


@story("produce")
def max_timestamp(s: Story) -> None:
    """The broker recomputes the batch's maximum timestamp."""
    t = s.topic()
    s.produce(t, s.batch(3, ts_deltas=[0, 500, 100]), note="right")
    s.produce(t, s.batch(3, ts_deltas=[0, 500, 100], max_ts=s.t0 + 9999), note="too high")
    s.produce(t, s.batch(3, ts_deltas=[0, 500, 100], max_ts=s.t0), note="too low")
    s.produce(t, s.batch(3, ts_deltas=[0, 500, 100], max_ts=-1, codec=1), note="-1, compressed")
    s.produce(t, s.batch(1, ts=-1), note="base -1")
    s.fetch(t)


@story("produce")
def log_append_time(s: Story) -> None:
    t = s.topic(message__timestamp__type="LogAppendTime")
    for v in (3, 9):
        s.produce(t, s.batch(2), v=v)
    s.produce(t, s.batch(2, codec=1), note="compressed")
    s.produce(t, s.batch(2, ts=s.t0 + 9 * HOUR), note="the sender's time does not matter")
    s.produce(t, s.batch(1, attributes=0x08), note="already flagged")
    s.fetch(t)


@story("produce")
def topic_compression(s: Story) -> None:
    """A compression.type other than producer recompresses the batch."""
    for kind in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        t = s.topic(compression__type=kind)
        for codec in (0, 1, 4):
            s.produce(t, s.batch(3, codec=codec, ts_deltas=[0, 7, 3]), note=f"{kind}, codec {codec}")
        s.fetch(t, note=kind)


@story("produce")
def several_partitions(s: Story) -> None:
    """Partitions of one request succeed and fail independently."""
    t, u = s.topic(2), s.topic()
    rows = [(t, 0, s.batch(1)), (t, 1, s.batch(1, crc=1)), (u, 0, s.batch(1)), (t, 2, s.batch(1))]
    s.produce(rows)
    s.produce(rows, acks=1, v=3)
    s.produce([(t, 0, s.batch(1)), (t, 0, s.batch(2))], note="a partition twice")
    s.ask("produce", 9, acks=-1, timeout=1000, topic_data=[], note="none")
    empty = [{"name": t.name, "partition_data": []}]
    s.ask("produce", 9, acks=-1, timeout=1000, topic_data=empty, note="a topic without partitions")
    s.fetch([(t, 0, 0), (t, 1, 0)])


@story("produce")
def log_start_in_answers(s: Story) -> None:
    """Errors of record checks and of the producer state have the real log start offset, other errors -1."""
    t = s.topic()
    s.produce(t, s.batch(5))
    parts = [{"partition_index": 0, "offset": 3}]
    s.ask("delete_records", 1, topics=[{"name": t.name, "partitions": parts}], timeout=10000)
    pid, _ = s.producer_id()
    s.produce(t, s.batch(1), note="good")
    s.produce(t, s.batch(1, crc=1), note="CRC")
    s.produce(t, s.batch(1, base_offset=4), note="base offset")
    s.produce(t, s.batch(1, count=2), note="count")
    s.produce(t, s.batch(1, attributes=0x20), note="control")
    s.produce(t, b"", note="no bytes")
    s.produce(t, s.batch(1, pid=pid, epoch=0, seq=0), note="first of a producer")
    s.produce(t, s.batch(1, pid=pid, epoch=0, seq=5), note="gap")
    s.produce(t, s.batch(1, pid=pid, epoch=0, seq=0), note="duplicate")
    s.produce(t, s.batch(1), acks=5, note="acks 5")


@story("produce")
def content(s: Story) -> None:
    """Fetched records equal the produced ones: null and empty values, headers, many records."""
    t = s.topic()
    s.produce(t, s.batch([None, b"", b"x"], keys=[None, b"", b"k"]))
    s.produce(t, s.batch(1, headers=[(b"a", b"1"), (b"a", None), (b"", b"")]))
    s.produce(t, s.batch([b"\x00\xff" * 5000]))
    s.produce(t, s.batch(1, ts_deltas=[0], keys=[b"\xff\xfe"]))
    s.fetch(t)


@story("produce")
def transactional_id_without_transaction(s: Story) -> None:
    """A transactional id in the request with a plain batch is ignored."""
    t = s.topic()
    s.produce(t, s.batch(1), tx=s.name("tx"), v=9)
    s.produce(t, s.batch(1), tx="", v=12)
