"""Run an audit: read the tables, check the rules, write the results, and render the page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from odradek.errors import OdradekError
from odradek.spark.audit import (
    atomicity,
    business_keys,
    chains,
    comparison,
    contiguity,
    coordinator,
    counting,
    figures,
    leadership,
    offsets,
    page,
    presence,
    producers,
    sequences,
    tables,
    unfinished,
    zero_tails,
)
from odradek.spark.audit import deep as deep_queries
from odradek.spark.audit.findings import WARNING, located
from odradek.spark.audit.report import Counts, Finding, Report
from odradek.spark.audit.store import Store, adapted
from odradek.spark.audit.tables import Say, Source
from odradek.spark.audit.two_looks import Looks

DAY_MS: Final = 86_400_000
FINDINGS_MAX: Final = 200
"""Largest number of findings of one name in the report; ``OUT/findings`` has all of them."""
ROWS_MAX: Final = 5_000
"""Largest number of rows of one result table that are read for the page."""
_EPOCH: Final = ("replica", "producer_id", "producer_epoch")
_AT_A_TIME: Final = 3
"""Number of small result tables that are written at the same time, because planning them takes most of the time."""
_DOUBTFUL_WHILE_LIVE: Final = (
    "hanging_transaction",
    "missing_marker",
    "mixed_outcome",
    "replicas_differ",
    "illegal_transition",
    "damage",
    "lost_partition",
    "wrong_index",
    "wrong_max_timestamp",
)
"""Findings that are only warnings while a broker runs: they may come from reading the files at different moments, between
which the broker creates a directory, or compacts a segment and rebuilds its indexes."""


def audit(
    spark: SparkSession,
    data_dir: str | Path,
    out_dir: str | Path,
    *,
    unique: Mapping[str, str] | None = None,
    producer_id_expiration_ms: int = DAY_MS,
    deep: bool = False,
    say: Say = lambda _: None,
) -> Report:
    """Check all rules on the directories below ``data_dir``; write Parquet tables and ``report.html`` to ``out_dir``.

    ``data_dir`` is what ``odradek.segments`` accepts: a data directory, a log.dir of Apache Kafka, a partition's
    directory, or several separated by commas. ``unique`` maps topics to business keys, which are SQL expressions over
    the columns of a record. ``producer_id_expiration_ms`` is the brokers' ``producer.id.expiration.ms``. ``deep`` also
    decodes every record and reads the index files. ``say`` is called with a phrase at the beginning of each step.
    Raises ``NoSuchDirectory`` if there is no partition to audit, and ``BadKey`` if a business key is not a valid
    expression or its topic does not exist.
    """
    source = tables.find(str(data_dir))
    for topic in unique or ():
        if topic not in source.topics:
            raise BadKey(f"There is no topic {topic} in {data_dir}: remove or correct its business key.")
    out = Store(spark, Path(out_dir))
    asked_for = Options(unique or {}, producer_id_expiration_ms, deep)
    with tempfile.TemporaryDirectory(prefix=".audit-", dir=out.directory) as scratch:
        asked = Audit(source, Store(spark, Path(scratch)), out, say, asked_for)
        report = asked.report()
    say("rendering the page")
    (out.directory / "report.html").write_text(page.render(report), encoding="utf-8")
    return report


class BadKey(OdradekError):
    """A business key that is not an SQL expression over a record's columns, or whose topic does not exist."""


class Options(NamedTuple):
    """The options of an audit."""

    unique: Mapping[str, str]
    expiration_ms: int
    deep: bool


class Audit:
    """One audit in progress. Intermediate tables are in ``scratch``, results in ``out``."""

    def __init__(
        self,
        source: Source,
        scratch: Store,
        out: Store,
        say: Say,
        options: Options,
    ) -> None:
        self.source, self.scratch, self.out, self.say = source, scratch, out, say
        self.unique, self.expiration_ms, self.deep = options
        self.spark = scratch.spark

    def report(self) -> Report:
        self.index_before = self._first_look()
        self.say("reading batches")
        self.rows, self.zeros = tables.read_batches(self.source, self.scratch)
        with adapted(self.spark, self.scratch.count("batches")):
            self._read()
            known = self._totals()
            self.say("checking the rules")
            raw = self.scratch.keep("raw", self._found(known))
            findings, counts = self._located(raw)
            self.say("computing figures")
            self._figures(figures.Span(known["from_ms"], known["to_ms"]))
        shown = {name: self.out.rows(name, ROWS_MAX) for name in page.TABLES}
        return Report(self.source.paths, self.source.live, counts, findings, known, shown)

    def _first_look(self) -> DataFrame | None:
        """Index entries from before the batches are read (``two_looks``); None if no broker runs, or without ``deep``."""
        if not self.deep or not self.source.live:
            return None
        self.say("reading indexes")
        places = [place for place in self.source.partitions if place[0] in self.source.live_dirs]
        return self.scratch.keep("index_before", deep_queries.index_entries(self.spark, places), files=None)

    def _read(self) -> None:
        """Read the tables that all rules of the audit use."""
        self.say("comparing replicas")
        self.parts, self.replicas = tables.read_replicas(self.source, self.scratch, self.rows)
        self.say("following transactions")
        followed = figures.named(chains.partition_transactions(self.rows), self.replicas)
        self.transactions = self.scratch.keep("transactions", followed, files=None)
        self.spoken = self.transactions.where("speaks")
        self.say("reading the records of the coordinators")
        state = tables.load(self.spark, self.source, "transaction_state")
        self.steps = self.scratch.keep("steps", coordinator.steps(state, self.replicas))
        self.decisions = self.out.keep("decisions", coordinator.decisions(self.steps))
        self.ids = coordinator.ids(self.steps)
        self.assigned = figures.assigned(self.spoken, self.decisions)
        self.counted = self.scratch.keep("counted", counting.counted(self.assigned, self.spoken), files=None)

    def _totals(self) -> dict[str, Any]:
        """Figures of the whole audit, some of which show that a rule cannot have findings."""
        self.scratch.keep("totals", figures.totals(self.replicas))
        self.scratch.keep("transaction_totals", figures.transaction_totals(self.transactions))
        self.scratch.keep("counts", counting.totals(self.counted))
        known: dict[str, Any] = {}
        for name in ("totals", "transaction_totals", "counts"):
            known |= self.scratch.rows(name, 1)[0]
        known["transactions"] = sum(
            known[f"{name}_transactions"] for name in ("committed", "aborted", "open")
        )
        known["keys"], known["deep"] = len(self.unique), self.deep
        known["log_dirs"], known["topics"] = len(self.source.directories), len(self.source.topics)
        return known

    # -- the rules ----------------------------------------------------------------------------------------------

    def _found(self, known: Mapping[str, Any]) -> DataFrame:
        found = [
            *self._of_files(known),
            *self._of_sequences(known),
            *self._of_transactions(known),
            *self._of_producers(known),
            *self._of_bytes(),
            *(self._of_keys(topic, key) for topic, key in sorted(self.unique.items())),
        ]
        return reduce(DataFrame.unionByName, found)

    def _of_files(self, known: Mapping[str, Any]) -> Iterator[DataFrame]:
        unsure = [directory.path for directory in self.source.directories if not directory.whole]
        self.holes = contiguity.holes(self.rows, self.replicas, unsure)
        if known["uneven"]:
            self.holes = self.scratch.keep("holes", self.holes)
            yield contiguity.offset_findings(self.holes)
        if self.zeros is not None:
            yield zero_tails.tail_findings(self.zeros, self.holes)
        if known["damaged"]:
            yield contiguity.damage_findings(self.rows)
        if known["miscounted"]:
            yield contiguity.count_findings(self.rows, self.replicas)
        if known["several_leader_epochs"]:
            yield leadership.epoch_findings(self.rows, self.replicas)
        if known["copies"] > 1:
            differing = comparison.differing_buckets(self.parts, self.replicas)
            differing = self.scratch.keep("differing", differing)
            if self.scratch.count("differing"):
                yield comparison.replica_findings(self.rows, differing)

    def _of_sequences(self, known: Mapping[str, Any]) -> Iterator[DataFrame]:
        self.fallen: DataFrame | None = None
        if not known["suspicious"]:
            return
        suspected = sequences.suspects(self.transactions)
        judged = sequences.judged(self.rows, suspected, self.expiration_ms)
        self.fallen = self.scratch.keep("fallen", sequences.epoch_findings(judged))
        yield self.fallen
        yield sequences.sequence_findings(sequences.sequence_steps(judged, self.replicas), self.holes)

    def _of_transactions(self, known: Mapping[str, Any]) -> Iterator[DataFrame]:
        yield coordinator.transition_findings(self.steps)
        undecided = atomicity.undecided_findings(self.spoken, self.decisions)
        yield undecided
        contradicting = atomicity.contradicting_findings(self.spoken, self.decisions)
        yield contradicting.join(
            F.broadcast(undecided.select("replica", "offset")), ["replica", "offset"], "left_anti"
        )
        said = [found.select(*_EPOCH) for found in (undecided, contradicting)]
        yield from self._of_absent()
        overtaken = unfinished.overtaken_findings(self.spoken, self.replicas, self.fallen)
        blamed = self._lacking()
        if blamed is not None:
            yield atomicity.atomicity_findings(blamed)
            said.append(blamed.select(*_EPOCH))
            blamed = blamed.select("replica", "producer_id").distinct()
            overtaken = overtaken.join(F.broadcast(blamed), ["replica", "producer_id"], "left_anti")
        yield overtaken
        yield from self._of_neighbours(reduce(DataFrame.unionByName, said))
        yield from self._of_open(blamed)
        yield from self._of_offsets([undecided] if blamed is None else [undecided, blamed])

    def _of_neighbours(self, said: DataFrame) -> Iterator[DataFrame]:
        """Findings for consecutive markers that contradict each other.

        ``said`` are findings whose producer epochs are skipped.
        """
        pairs = self.scratch.keep("neighbours", atomicity.neighbours(self.spoken))
        if self.scratch.count("neighbours") and self.all_is_decided:
            found = atomicity.neighbour_findings(pairs, self.decisions, self.ids)
            yield found.join(said.distinct(), list(_EPOCH), "left_anti")

    @cached_property
    def history(self) -> DataFrame:
        """The coordinators' records. They are read last, so they contain every producer id that the other tables have."""
        state = tables.load(self.spark, self.source, "transaction_state")
        return self.scratch.keep("history", coordinator.history(state))

    @cached_property
    def all_is_decided(self) -> bool:
        """Whether the coordinators' logs were read without gaps: a decision that they do not contain was never made."""
        return self.source.all_coordinators and coordinator.incomplete(self.history, self.replicas).isEmpty()

    def _of_producers(self, known: Mapping[str, Any]) -> Iterator[DataFrame]:
        if known["plain_producers"]:
            yield producers.plain_findings(self.transactions, self.ids)
        strangers = self.scratch.keep("strangers", producers.strangers(self.spoken, self.steps))
        if self.scratch.count("strangers") and self.all_is_decided:
            since_ms = self.source.coordinators_since_ms
            yield producers.unknown_findings(strangers, coordinator.given(self.history), since_ms)

    def _of_absent(self) -> Iterator[DataFrame]:
        places = [(topic, partition) for _, topic, partition in self.source.partitions]
        rows = presence.absent(self.source.metadata, places, self.source.directories)
        if rows:
            yield presence.missing_findings(self.scratch.put("absent", rows, presence.ABSENT), self.decisions)

    def _lacking(self) -> DataFrame | None:
        """Decisions without their marker in a partition, with the verdict on each; None if there are none."""
        listed = atomicity.listed(self.decisions, self.replicas)
        markers = atomicity.markers(self.spoken)
        lacking = self.scratch.keep("lacking", atomicity.lacking(listed, markers))
        if not self.scratch.count("lacking"):
            return None
        verdicts = atomicity.verdicts(lacking, listed, markers, self.spoken)
        return self.scratch.keep("verdicts", verdicts).where("verdict is not null")

    def _of_open(self, blamed: DataFrame | None) -> Iterator[DataFrame]:
        still_open = self.scratch.keep("open", unfinished.open_transactions(self.spoken, self.replicas))
        if self.scratch.count("open"):
            still_open = unfinished.held_bytes(self.rows, still_open)
        explained = [] if blamed is None else [blamed]
        if self.fallen is not None:
            explained.append(self.fallen.where("name = 'late_batch'").select("replica", "producer_id"))
        classified = unfinished.classified(
            still_open,
            coordinator.current(self.steps),
            self.ids,
            self.decisions,
            reduce(DataFrame.unionByName, explained) if explained else None,
            self.source.all_coordinators,
            coordinator.given(self.history) if self.source.live and self.scratch.count("open") else None,
        )
        yield unfinished.hanging_findings(self.out.keep("open_transactions", classified))

    def _of_offsets(self, blamed: Sequence[DataFrame]) -> Iterator[DataFrame]:
        committed = tables.load(self.spark, self.source, "offsets")
        together = offsets.offsets_in_transactions(committed, self.assigned)
        apart = self.out.keep("offsets_in_transactions", together).where("not agrees")
        if not apart.isEmpty():
            yield offsets.offset_findings(apart, blamed)

    def _of_bytes(self) -> Iterator[DataFrame]:
        if not self.deep:
            return
        topics = ",".join(self.source.topics)
        records = tables.load(
            self.spark, self.source, "records", topics=topics, columns=deep_queries.RECORD_COLUMNS
        )
        decoded = self.scratch.keep("decoded", deep_queries.decoded(records), files=None)
        entries = deep_queries.index_entries(self.spark, list(self.source.partitions))
        entries = self.scratch.keep("index_entries", entries, files=None)
        looks = (
            None if self.index_before is None else Looks(self.index_before, entries, self.source.live_dirs)
        )
        yield deep_queries.payload_findings(decoded, self.rows, looks)
        yield deep_queries.timestamp_findings(decoded, self.rows, looks)
        yield from deep_queries.index_findings(entries, self.rows, self.transactions, self.replicas, looks)

    def _of_keys(self, topic: str, key: str) -> DataFrame:
        records = tables.load(self.spark, self.source, "records", topics=topic)
        committed = business_keys.committed(records, self.transactions, self.replicas)
        try:
            return business_keys.key_findings(business_keys.repeated(committed, key))
        except PySparkException as error:
            reason = str(error).splitlines()[0]
            raise BadKey(
                f"The business key of {topic} is not a valid SQL expression over the columns of a record: {reason}"
            ) from None

    # -- the results --------------------------------------------------------------------------------------------

    def _located(self, raw: DataFrame) -> tuple[list[Finding], Counts]:
        """Write the result table ``findings``, with the place of each finding.

        Returns the first ``FINDINGS_MAX`` findings of each name, and the numbers of all findings by name and severity.
        """
        everything = located(raw, self.rows, self.replicas, self.ids)
        if not self.scratch.count("raw"):
            self.out.put("findings", [], everything.schema)
            return [], Counts()
        if self.source.live:
            doubtful = F.col("name").isin(*_DOUBTFUL_WHILE_LIVE)
            severity = F.when(doubtful, WARNING).otherwise(F.col("severity"))
            everything = everything.withColumn("severity", severity)
        kept = self.out.keep("findings", everything)
        counts = Counts(
            {
                (row["name"], row["severity"]): row["count"]
                for row in kept.groupBy("name", "severity").count().collect()
            }
        )
        place = Window.partitionBy("name").orderBy("topic", "partition", "offset", "log_dir")
        first = kept.withColumn("nth", F.row_number().over(place)).where(F.col("nth") <= FINDINGS_MAX)
        ordered = first.orderBy("name", "nth").drop("nth", "kind").collect()
        return [Finding(**row.asDict()) for row in ordered], counts

    def _figures(self, span: figures.Span) -> None:
        results: dict[str, Callable[[], DataFrame]] = {
            "replicas": lambda: self.replicas.drop("replica"),
            "transactions": lambda: self.transactions.drop("replica", "suspicious", "end_offset"),
            "outcomes": lambda: counting.outcomes(self.counted, self.ids),
            "topics": lambda: figures.topics(self.spoken),
            "empty_markers": lambda: figures.empty_markers(self.spoken),
            "timeline": lambda: counting.by_time(self.counted, span.step("marker_ms")),
            "stable_offset_lag": lambda: figures.stable_offset_lag(self.spoken, span),
            "commit_latency": lambda: figures.commit_latency(self.assigned),
        }
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            many = ("transactions",)
            list(
                pool.map(
                    lambda name: self.out.keep(name, results[name](), None if name in many else 1), results
                )
            )
