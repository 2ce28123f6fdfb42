"""Tools that produce and consume: console clients, verifiable clients, performance tests, and test programs."""

from __future__ import annotations

from shlex import quote

from tests.differential.console_tools.normal import Shown
from tests.differential.console_tools.story import ToolStory, story

IDLE_MS = 1000
"""Milliseconds without a record after which a consumer ends."""
ALL_SHOWN = tuple(
    f"--formatter-property=print.{name}=true"
    for name in ("timestamp", "key", "offset", "partition", "epoch", "delivery", "headers", "value")
)
FORMATTERS = "org.apache.kafka.tools.consumer"
KEYED = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
TOOK = Shown(hidden=(r"(?<=[\s(])[\d.]+",))
"""Hides all numbers of a performance test's output, except the number of records at the beginning of a line."""
READ = Shown(hidden=(r"^[^,]+, [^,]+, ([\d.]+, [\d.]+), \d+, ", r"^[^,]+, [^,]+, [^,]+, \d+, (.*)"))
"""Hides sizes, durations and rates in the output of kafka-consumer-perf-test, but not the number of records."""


DUMPED = Shown(
    hidden=(
        r"[pP]roducerId\"?[:=] ?(\d+)",
        r"[hH]ash\"?:\"?(-?\d+)",
        r"crc: (\d+)",
        r"(?:CreateTime|Timestamp|LastUpdateTime|assignmentTimestamp\"): ?(\d+)",
        r" size: (\d+)",
        r"position: (\d+)",
        r"(?:key|value)Size: (\d+)",
    )
)
"""Hides ids, times and sizes in the output of a log dump."""


@story("kafka-console-producer")
def typed_and_shown(s: ToolStory) -> None:
    orders = ("--topic", s.orders())
    s.run(*orders, input="one\ntwo\n\nfour\n")
    s.run(*orders, *KEYED, input="a:five\nb:six\nc:\n")
    headers = ("--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL")
    s.run(*orders, *KEYED, *headers, input="source:shop,n:1\tk:seven\nn:NULL\tk:NULL\n")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        s.run(*orders, f"--compression-codec {codec} --sync", input=f"{codec}\n")
    s.run(*orders, "--request-required-acks 0 --command-property enable.idempotence=false", input="acks 0\n")
    consumer = ("--from-beginning", "--max-messages", 14, "--timeout-ms", IDLE_MS * 10)
    s.run(*orders, *consumer, *ALL_SHOWN, tool="kafka-console-consumer")


@story("kafka-console-producer")
def refused(s: ToolStory) -> None:
    orders = ("--topic", s.orders(max__message__bytes="100"))
    s.run(*orders, input="x" * 1000 + "\n")
    s.run(*orders, "--sync", input="x" * 1000 + "\n")
    s.run(*orders, *KEYED, input="no separator\n")
    s.run(*orders, "--compression-codec rar", input="one\n")
    s.run("--topic", quote(s.name("no topic")), "--max-block-ms 3000", input="one\n")
    s.run(f"--topic {s.orders(name='compacted', cleanup__policy='compact')} --sync", input="no key\n")
    s.run(input="one\n")
    s.run(f"--topic {s.name('created')}", input="one\n")
    s.run(f"--describe --topic {s.name('created')}", tool="kafka-topics")


@story("kafka-console-consumer")
def of_records(s: ToolStory) -> None:
    orders = s.orders(2)
    s.write(orders, *"abcdef")
    s.write(orders, *"gh", partition=1)
    for place in ("--partition 0 --offset 2", "--partition 0 --offset earliest", "--partition 1 --offset -1"):
        s.run(f"--topic {orders}", *place.split(), "--max-messages 1 --timeout-ms", IDLE_MS * 10, *ALL_SHOWN)
    s.run(f"--topic {orders} --from-beginning --timeout-ms {IDLE_MS}", show=Shown(sorted=True))
    s.run(
        f"--include {orders[:-1]}. --from-beginning --max-messages 8 --timeout-ms",
        IDLE_MS * 10,
        show=Shown(sorted=True),
    )
    group = ("--group", s.name("readers"))
    s.run(
        f"--topic {orders}",
        *group,
        "--from-beginning --max-messages 8 --timeout-ms",
        IDLE_MS * 10,
        show=Shown(sorted=True),
    )
    s.run("--describe", *group, tool="kafka-consumer-groups", show=Shown(sorted=True))
    modern = ("--command-property", "group.protocol=consumer")
    s.run(
        f"--topic {orders} --group {s.name('modern')} --from-beginning",
        *modern,
        "--max-messages 8 --timeout-ms",
        IDLE_MS * 10,
        show=Shown(sorted=True),
    )
    s.run(f"--describe --group {s.name('modern')} --state", tool="kafka-consumer-groups")


@story("kafka-console-consumer")
def of_transactions(s: ToolStory) -> None:
    orders = s.orders()
    for name, committed in (("one", True), ("two", False)):
        s.end(name, s.begin(name, orders), committed=committed)
    s.write(orders, "three")
    ends = ("--from-beginning", "--timeout-ms", IDLE_MS * 10, "--max-messages")
    s.run(f"--topic {orders}", *ends, "2 --isolation-level read_committed", *ALL_SHOWN)
    s.run(f"--topic {orders}", *ends, "3 --isolation-level read_uncommitted", *ALL_SHOWN)
    s.run(f"--topic {orders}", *ends, "2 --isolation-level read_most")


@story("kafka-console-consumer", profile="formatters")
def of_internal_topics(s: ToolStory) -> None:
    """The formatters print the records of internal topics. The broker of this profile has one partition in each of
    them."""
    orders, readers = s.orders(), s.name("readers")
    s.end("writer", s.begin("writer", orders, values=[b"one"]), committed=True)
    s.commit(readers, orders, 1)
    with s.consumer(readers, orders, group_protocol="classic"):
        pass
    with s.consumer(s.name("modern"), orders, group_protocol="consumer"):
        pass
    s.run(f"--delete --group {readers}", tool="kafka-consumer-groups")
    records = Shown(
        hidden=(
            r'"producerId":(\d+)',
            r'"(?:previous|next)ProducerId":(\d+)',
            r'"topicHash":(-?\d+)',
            r'"hash":(-?\d+)',
        )
    )
    for topic, formatter in (
        ("__transaction_state", "TransactionLogMessageFormatter"),
        ("__consumer_offsets", "OffsetsMessageFormatter"),
        ("__consumer_offsets", "GroupMetadataMessageFormatter"),
    ):
        s.run(
            f"--topic {topic} --from-beginning --timeout-ms {IDLE_MS} --formatter {FORMATTERS}.{formatter}",
            show=records,
        )
    for topic, decoder in (
        ("__transaction_state", "--transaction-log-decoder"),
        ("__consumer_offsets", "--offsets-decoder"),
    ):
        segment = s.data_dir / f"{topic}-0" / "00000000000000000000.log"
        s.run(f"--files {segment} {decoder}", at=(), show=DUMPED, tool="kafka-dump-log")


@story("kafka-console-consumer")
def refused_of_consumers(s: ToolStory) -> None:
    orders = s.orders()
    soon = ("--timeout-ms", IDLE_MS)
    s.run(f"--topic {orders} --offset 3", *soon)
    s.run(f"--topic {orders} --partition 0 --offset third", *soon)
    s.run(f"--topic {orders} --partition 0 --offset 100 --from-beginning", *soon)
    s.run(f"--topic {orders} --partition 0 --offset 100", *soon)
    s.run("--topic", quote(s.name("no topic")), *soon)
    s.run(f"--topic {s.name('created')} --from-beginning", *soon)
    s.run(f"--topic {orders} --formatter no.such.Formatter", *soon)
    s.run(f"--topic {orders} --group", "", *soon)
    s.run(*soon)


@story("kafka-verifiable-producer")
def and_its_consumer(s: ToolStory) -> None:
    orders = s.orders()
    summary = Shown(hidden=(r'"avg_throughput":([\d.E-]+)',))
    s.run(f"--topic {orders} --max-messages 5 --acks 1", show=summary)
    s.run(
        f"--topic {orders} --max-messages 3 --value-prefix 7 --repeating-keys 2 --message-create-time {s.t0}",
        show=summary,
    )
    s.run(
        "--topic",
        quote(s.name("no topic")),
        "--max-messages 1 --command-config",
        s.file("short.properties", "max.block.ms=2000"),
        show=summary,
    )
    consumer = (
        "--topic",
        orders,
        "--group-id",
        s.name("readers"),
        "--max-messages",
        8,
        "--reset-policy",
        "earliest",
        "--verbose",
    )
    s.run(*consumer, tool="kafka-verifiable-consumer")


@story("kafka-verifiable-consumer")
def of_both_protocols(s: ToolStory) -> None:
    orders = s.orders()
    s.write(orders, *"abcdef")
    # A client whose first heartbeat comes before it has the topic's id starts with no partitions.
    seen = Shown(dropped=(r'"partitions_assigned","partitions":\[\]',))
    ends = ("--max-messages", 6, "--reset-policy", "earliest")
    s.run(f"--topic {orders} --group-id {s.name('classic')}", *ends, "--enable-autocommit", show=seen)
    s.run(
        f"--topic {orders} --group-id {s.name('modern')}",
        *ends,
        "--group-protocol consumer --group-remote-assignor range",
        show=seen,
    )
    s.run(
        f"--topic {orders} --group-id {s.name('static')}",
        *ends,
        "--group-instance-id seat --session-timeout 7000",
        show=seen,
    )
    s.run(
        f"--topic {orders} --group-id {s.name('other')}",
        *ends,
        "--group-protocol consumer --session-timeout 7000",
        show=seen,
    )
    s.run(f"--topic {orders} --group-id {s.name('long')}", *ends, "--session-timeout 99999999", show=seen)
    for group in ("classic", "modern", "static"):
        s.run(f"--describe --group {s.name(group)}", tool="kafka-consumer-groups")


@story("kafka-producer-perf-test")
def perf_of_producers(s: ToolStory) -> None:
    topic = ("--topic", s.orders())
    s.run(*topic, "--num-records 500 --record-size 100 --throughput", -1, show=TOOK)
    s.run(
        *topic,
        "--num-records 300 --record-size 100 --throughput",
        -1,
        "--command-property acks=1 compression.type=lz4 enable.idempotence=false",
        show=TOOK,
    )
    # One transaction, however slow the machine: each further one would add a marker to the log.
    transactional = ("--transactional-id", s.name("perf"), "--transaction-duration-ms", 600_000)
    s.run(*topic, "--num-records 200 --payload-monotonic --throughput", -1, *transactional, show=TOOK)
    payloads = s.file("payloads", "one\ntwo\nthree\n")
    s.run(
        *topic, f"--num-records 10 --payload-file {payloads} --throughput 10000 --warmup-records 5", show=TOOK
    )
    s.run(*topic, "--num-records 10 --record-size 2000000 --throughput", -1, show=TOOK)
    s.run(*topic, "--num-records 0 --record-size 1 --throughput", -1, show=TOOK)
    s.run(f"--topic {s.name('orders')} --time latest", tool="kafka-get-offsets")


@story("kafka-consumer-perf-test")
def perf_of_consumers(s: ToolStory) -> None:
    orders = s.orders()
    s.write(orders, *(str(number) for number in range(500)))
    s.run(f"--topic {orders} --num-records 500 --timeout", IDLE_MS * 10, show=READ)
    s.run(
        f"--topic {orders} --num-records 500 --group {s.name('perf')} --hide-header",
        "--show-detailed-stats --reporting-interval 60000",
        show=READ,
    )
    s.run(f"--include {orders[:-1]}. --num-records 500 --command-property group.protocol=consumer", show=READ)
    s.run(f"--topic {orders} --num-records 1000 --timeout {IDLE_MS}", show=READ)
    s.run(f"--topic {orders} --num-records 10 --from-latest --timeout {IDLE_MS}", show=READ)


@story("kafka-e2e-latency")
def latencies(s: ToolStory) -> None:
    orders = ("--topic", s.orders(), "--record-size", 100)
    s.run(*orders, "--num-records 10 --producer-acks all", show=TOOK)
    s.run(
        *orders,
        "--num-records 10 --producer-acks 1",
        "--record-key-size 5 --num-headers 2 --record-header-key-size 3 --record-header-size 4",
        show=TOOK,
    )
    s.run(f"--topic {s.name('created')} --record-size 10 --num-records 2 --producer-acks 1", show=TOOK)
    s.run(*orders, "--num-records 10 --producer-acks 0", show=TOOK)
    s.run(f"--topic {s.name('orders')} --time latest", tool="kafka-get-offsets")


@story("TransactionalMessageCopier")
def exactly_once(s: ToolStory) -> None:
    source = s.orders(name="source")
    s.write(source, *(str(number) for number in range(20)))
    stages = Shown(hidden=(r'"stage":"\w+".*',))
    for name, options in (("calm", ""), ("shaken", "--enable-random-aborts")):
        target = s.orders(name=f"target-{name}")
        s.run(
            f"--broker-list {s.bootstrap} --transactional-id {s.name(name)} --consumer-group {s.name(name)}",
            f"--input-topic {source} --input-partition 0 --output-topic {target} --max-messages 20",
            f"--transaction-size 6 {options}",
            at=(),
            show=Shown(only="nothing") if options else stages,
        )
        ends = f"--from-beginning --max-messages 20 --timeout-ms {IDLE_MS * 10}"
        s.run(f"--topic {target} {ends} --isolation-level read_committed", tool="kafka-console-consumer")
        s.run(f"--describe --group {s.name(name)}", tool="kafka-consumer-groups")


SUPPORTED = " ".join(
    f"--{what}-supported True"
    for what in (
        "offsets-for-times",
        "cluster-id",
        "create-topics",
        "describe-configs",
        "idempotent-producer",
    )
)
SUPPORTED += " --expect-record-too-large-exception False"


@story("ClientCompatibilityTest")
def of_a_new_broker(s: ToolStory) -> None:
    orders = s.orders()
    common = ("--topic", orders, SUPPORTED)
    s.run(*common, "--num-cluster-nodes 1 --describe-acls-supported True")
    s.run("--delete --topic newtopic", tool="kafka-topics")
    s.run(*common, "--num-cluster-nodes 1 --describe-acls-supported False")
    s.run("--delete --topic newtopic", tool="kafka-topics")


@story("kafka-streams-application-reset")
def of_an_application(s: ToolStory) -> None:
    source, application = s.orders(2, name="source"), s.name("application")
    s.orders(name="application-counts-changelog")
    s.orders(name="application-counts-repartition")
    s.orders(name="application-mine")
    s.write(source, *"abcdefgh")
    s.write(source, *"ij", partition=1)
    s.commit(application, source, 5, 2)
    of_it = ("--application-id", application, "--input-topics", source)
    lines = Shown(sorted=True)
    s.run(*of_it, "--dry-run", show=lines)
    for scenario in (
        "--to-latest",
        "--to-offset 3",
        "--shift-by -1",
        "--to-datetime 2099-01-01T00:00:00.000",
        "--by-duration PT24H",
    ):
        s.run(*of_it, *scenario.split(), "--dry-run", show=lines)
    s.run(*of_it, f"--internal-topics {s.name('application-mine')} --dry-run", show=lines)
    s.run(f"--describe --group {application}", tool="kafka-consumer-groups", show=lines)
    s.run(*of_it, show=lines)
    s.run(f"--describe --group {application}", tool="kafka-consumer-groups", show=lines)
    s.run("--list", tool="kafka-topics", show=Shown(only=s.prefix, sorted=True))
    s.run(*of_it, show=lines)


@story("kafka-streams-application-reset")
def refused_applications(s: ToolStory) -> None:
    source, application = s.orders(name="source"), s.name("application")
    of_it = ("--application-id", application, "--input-topics")
    s.run(*of_it, s.name("nowhere"))
    s.run(f"--application-id {application} --intermediate-topics {s.name('nowhere')}")
    s.run(f"--application-id {application} --internal-topics {s.name('nowhere')}")
    s.run(f"--application-id {s.name('nothing')}")
    with s.consumer(application, source):
        s.run(*of_it, source)
        s.run(*of_it, f"{source} --force")
    s.run(f"--describe --group {application}", tool="kafka-consumer-groups")


@story("kafka-dump-log")
def of_a_segment(s: ToolStory) -> None:
    """kafka-dump-log prints a segment: the files of our broker and of Kafka have the same content."""
    orders = s.orders()
    s.write(orders, "a", "b")
    s.end("writer", s.begin("writer", orders, values=[b"c"], codec=1), committed=True)
    folder = s.data_dir / f"{orders}-0"
    segment = folder / "00000000000000000000.log"
    s.run(f"--files {segment}", at=(), show=DUMPED)
    s.run(f"--files {segment} --print-data-log --deep-iteration", at=(), show=DUMPED)
    s.run("--files", folder / "nothing.log", at=())


@story("kafka-dump-log")
def of_the_indexes_of_a_rolled_segment(s: ToolStory) -> None:
    """kafka-dump-log prints the indexes of a rolled segment. In Kafka those of the active segment are preallocated."""
    orders = s.orders(segment__bytes="1048576", max__message__bytes="500000")
    for _ in range(4):
        s.write(orders, "x" * 400_000)
    base = s.data_dir / f"{orders}-0" / "00000000000000000000.log"
    positions = Shown(hidden=(r"position: (\d+)", r"timestamp: (\d+)"))
    s.run(f"--files {base.with_suffix('.index')}", at=(), show=positions)
    s.run(f"--files {base.with_suffix('.timeindex')}", at=(), show=positions)
    s.run(f"--files {base.with_suffix('.index')} --index-sanity-check", at=())
    s.run(f"--files {base.with_suffix('.timeindex')} --verify-index-only", at=())
    s.run(f"--files {base.with_name('00000000000000000002.snapshot')}", at=())
