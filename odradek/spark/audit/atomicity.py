"""Atomicity of transactions: each partition that a decision lists has a marker, and the marker has the decision's outcome.

Markers are matched to decisions by producer id and epoch. A ``bumped`` decision has a higher epoch than its data,
and no other transaction has this epoch. All other decisions of a producer share an epoch and are matched by
counting: a partition has at least as many markers of each outcome as there are decisions (a coordinator that
restarts sends some markers again, and an operator's kafka-transactions abort writes additional markers). If a
partition has too few markers, timestamps show which decision lacks its marker.

``spoken`` are the transactions in the chosen replicas (those of the partitions' last leaders).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from odradek.spark.audit.findings import VIOLATION, WARNING, finding

_KEY = ("replica", "producer_id", "producer_epoch", "bumped")


def markers(transactions: DataFrame) -> DataFrame:
    """One row for each marker and each kind of decision to which the marker may belong.

    ``bumped`` decisions have a higher epoch than their data, all others have the same epoch. A marker that ended no
    data may belong to a decision of either kind, so it has two rows.
    """
    below = F.col("last_epoch") < F.col("marker_epoch")
    ways = (
        F.when(F.col("first_offset").isNull(), F.array(F.lit(True), F.lit(False)))
        .when(below, F.array(F.lit(True)))
        .otherwise(F.array(F.lit(False)))
    )
    return transactions.where("marker_offset is not null").select(
        "replica",
        "producer_id",
        F.col("marker_epoch").alias("producer_epoch"),
        F.explode(ways).alias("bumped"),
        "outcome",
        "first_offset",
        "marker_offset",
        "marker_ms",
    )


def listed(decisions: DataFrame, replicas: DataFrame) -> DataFrame:
    """One row for each decision and each partition that the decision lists, with the partition's chosen replica.

    The chosen replica (``speaks``) is that of the partition's last leader. Partitions without a replica in the audited
    directories, such as those of deleted topics, are left out.
    """
    speaking = replicas.where("speaks").select("topic", "partition", "replica", "compacted", "damaged")
    return (
        decisions.withColumn("listed", F.explode("partitions"))
        .select("*", F.col("listed.topic").alias("topic"), F.col("listed.partition").alias("partition"))
        .drop("listed", "partitions")
        .join(F.broadcast(speaking), ["topic", "partition"])
    )


def _count(kind: str) -> Column:
    return F.count(F.when(F.col("outcome") == kind, F.lit(1)))


def lacking(listed_decisions: DataFrame, found_markers: DataFrame) -> DataFrame:
    """Decisions with too few markers of their outcome in a partition.

    ``right`` and ``wrong`` are the numbers of markers of the decision's outcome and of the other outcome.
    """
    have = found_markers.groupBy(*_KEY).agg(
        _count("commit").alias("commits"),
        _count("abort").alias("aborts"),
        F.min(F.when(F.col("outcome") == "commit", F.col("marker_offset"))).alias("a_commit"),
        F.min(F.when(F.col("outcome") == "abort", F.col("marker_offset"))).alias("an_abort"),
    )
    same = Window.partitionBy(*_KEY, "decision")
    commits = F.col("decision") == "commit"
    right = F.coalesce(F.when(commits, F.col("commits")).otherwise(F.col("aborts")), F.lit(0))
    wrong = F.coalesce(F.when(commits, F.col("aborts")).otherwise(F.col("commits")), F.lit(0))
    return (
        listed_decisions.withColumn("needed", F.count("*").over(same))
        .join(have, list(_KEY), "left")
        .withColumn("right", right)
        .withColumn("wrong", wrong)
        .withColumn("wrong_offset", F.when(commits, F.col("an_abort")).otherwise(F.col("a_commit")))
        .where("right < needed")
        .drop("commits", "aborts", "a_commit", "an_abort")
    )


def _in_time(
    lacking_decisions: DataFrame, listed_decisions: DataFrame, found_markers: DataFrame
) -> DataFrame:
    """Outcomes of the markers between each decision and the next one of the same epoch, by timestamp."""
    keys = lacking_decisions.where(~F.col("bumped")).select(*_KEY).distinct()
    moments = listed_decisions.join(F.broadcast(keys), list(_KEY), "left_semi").select(
        *_KEY,
        F.col("prepare_ms").alias("ms"),
        F.lit(0).alias("order"),
        F.col("offset").alias("decided"),
        F.lit(None).cast("string").alias("outcome"),
        F.lit(None).cast("long").alias("marker_offset"),
    )
    came = found_markers.join(F.broadcast(keys), list(_KEY), "left_semi").select(
        *_KEY,
        F.col("marker_ms").alias("ms"),
        F.lit(1).alias("order"),
        F.lit(None).cast("long").alias("decided"),
        "outcome",
        "marker_offset",
    )
    before = Window.partitionBy(*_KEY).orderBy("ms", "order").rowsBetween(Window.unboundedPreceding, 0)
    return (
        moments.unionByName(came)
        .withColumn("answers", F.last("decided", True).over(before))
        .where("order = 1")
        .groupBy(*_KEY, F.col("answers").alias("offset"))
        .agg(
            F.collect_set("outcome").alias("outcomes"),
            F.max("marker_offset").alias("its_offset"),
        )
    )


def verdicts(
    lacking_decisions: DataFrame,
    listed_decisions: DataFrame,
    found_markers: DataFrame,
    transactions: DataFrame,
) -> DataFrame:
    """Add to each decision a ``verdict``: ``mixed_outcome``, ``missing_marker``, or null if the log shows neither.

    A marker is only missing if the log reaches back to the decision: the log still has the transaction's data, or a marker
    that is older than the transaction. A damaged or compacted log, and a decision whose markers are not complete yet, are no
    violation.
    """
    first_markers = (
        transactions.where("marker_offset is not null")
        .groupBy("replica")
        .agg(F.min("marker_ms").alias("first_marker_ms"))
    )
    left_open = transactions.where("first_offset is not null").select(
        "replica",
        "producer_id",
        "first_offset",
        "first_epoch",
        F.coalesce("marker_epoch", F.col("last_epoch") + 1).alias("end_epoch"),
        F.col("outcome").alias("its_outcome"),
    )
    ended_here = (
        (F.col("d.replica") == F.col("t.replica"))
        & (F.col("d.producer_id") == F.col("t.producer_id"))
        & F.when(
            F.col("d.bumped"),
            (F.col("t.first_epoch") < F.col("d.producer_epoch"))
            & ((F.col("t.its_outcome") == "open") | (F.col("t.end_epoch") > F.col("d.producer_epoch"))),
        ).otherwise(
            (F.col("t.its_outcome") == "open") & (F.col("t.first_epoch") == F.col("d.producer_epoch"))
        )
    )
    with_data = (
        lacking_decisions.select("replica", "producer_id", "producer_epoch", "bumped", "offset")
        .alias("d")
        .join(left_open.alias("t"), ended_here)
        .groupBy("d.replica", "d.producer_id", "d.offset")
        .agg(F.max("t.first_offset").alias("data_offset"))
    )
    timed = _in_time(lacking_decisions, listed_decisions, found_markers)
    of_its_own = F.array_contains("outcomes", F.col("decision"))
    mixed = F.when(F.col("bumped"), F.col("wrong") > 0).otherwise(F.size("outcomes") > 0)
    reaches_back = F.col("data_offset").isNotNull() | (F.col("first_marker_ms") < F.col("start_ms"))
    cannot_tell = F.col("compacted") | (F.col("damaged") > 0) | F.col("complete_ms").isNull()
    return (
        lacking_decisions.join(first_markers, "replica", "left")
        .join(with_data, ["replica", "producer_id", "offset"], "left")
        .join(timed, [*_KEY, "offset"], "left")
        .where(F.col("bumped") | ~F.coalesce(of_its_own, F.lit(False)))
        .withColumn(
            "verdict",
            F.when(mixed, "mixed_outcome").when(reaches_back & ~cannot_tell, "missing_marker"),
        )
        .withColumn(
            "place",
            F.when(
                mixed, F.when(F.col("bumped"), F.col("wrong_offset")).otherwise(F.col("its_offset"))
            ).otherwise(F.col("data_offset")),
        )
        .drop("outcomes", "its_offset", "wrong_offset")
    )


def atomicity_findings(judged: DataFrame) -> DataFrame:
    mixed = F.col("verdict") == "mixed_outcome"
    other = F.when(F.col("decision") == "commit", "abort").otherwise("commit")
    said = F.concat(
        F.format_string(
            "the coordinator decided %s (__transaction_state-%d, offset %d), ",
            "decision",
            "coordinator_partition",
            "offset",
        ),
        F.when(mixed, F.concat(F.lit("the marker here says "), other)).otherwise(
            F.lit("and there is no marker here")
        ),
    )
    return judged.where("verdict is not null").select(
        finding(
            F.col("verdict"),
            said,
            offset="place",
            producer_id="producer_id",
            producer_epoch="producer_epoch",
            transactional_id="transactional_id",
        )
    )


def undecided_findings(spoken: DataFrame, decisions: DataFrame) -> DataFrame:
    """Findings for bumped epochs whose markers have different outcomes, although no decision is known.

    A bumped epoch is higher than the epoch of the data. It belongs to one transaction, so all its markers must agree.
    """
    ended = spoken.where("marker_offset is not null and last_epoch < marker_epoch").withColumnRenamed(
        "marker_epoch", "producer_epoch"
    )
    decided = decisions.select("producer_id", "producer_epoch").distinct()
    apart = (
        ended.groupBy("producer_id", "producer_epoch")
        .agg(_count("commit").alias("commits"), _count("abort").alias("aborts"))
        .where("commits > 0 and aborts > 0")
        .join(decided, ["producer_id", "producer_epoch"], "left_anti")
    )
    rarer = F.when(F.col("commits") < F.col("aborts"), "commit").otherwise("abort")
    return (
        ended.join(F.broadcast(apart), ["producer_id", "producer_epoch"])
        .where(F.col("outcome") == rarer)
        .select(
            finding(
                "mixed_outcome",
                F.format_string(
                    "the marker here says %s; on all partitions %d say commit and %d abort",
                    "outcome",
                    "commits",
                    "aborts",
                ),
                offset="marker_offset",
                producer_id="producer_id",
                producer_epoch="producer_epoch",
            )
        )
    )


def contradicting_findings(spoken: DataFrame, decisions: DataFrame) -> DataFrame:
    """Findings for a commit and an abort marker with the same epoch in a partition, if the epoch has one transaction.

    An epoch belongs to one transaction if a marker's epoch is above that of its data (KIP-890, or the coordinator has fenced
    the producer). If the data have the marker's own epoch, the marker is an operator's (kafka-transactions abort), or the
    client does not support KIP-890. Such epochs are not checked, and neither are epochs of several decisions.
    """
    key = ["producer_id", "producer_epoch"]
    ended = spoken.where("marker_offset is not null").withColumnRenamed("marker_epoch", "producer_epoch")
    several = decisions.groupBy(*key).count().where("count > 1").select(*key)
    shared = ended.where("last_epoch = producer_epoch and outcome = 'commit'").select(*key).distinct()
    of_their_own = ended.where("last_epoch < producer_epoch").select(*key).distinct()
    asked = of_their_own.join(shared, key, "left_anti").join(several, key, "left_anti")
    decided = decisions.select(*key, "decision")
    return (
        ended.where("last_epoch is null or last_epoch < producer_epoch")
        .join(asked, key, "left_semi")
        .groupBy("replica", *key)
        .agg(
            F.min(F.when(F.col("outcome") == "commit", F.col("marker_offset"))).alias("commit"),
            F.min(F.when(F.col("outcome") == "abort", F.col("marker_offset"))).alias("abort"),
        )
        .where("commit is not null and abort is not null")
        .join(decided, key, "left")
        .withColumn(
            "place",
            F.when(F.col("decision") == "commit", F.col("abort"))
            .when(F.col("decision") == "abort", F.col("commit"))
            .otherwise(F.greatest("commit", "abort")),
        )
        .select(
            finding(
                "mixed_outcome",
                F.format_string(
                    "the marker at offset %d says commit, the one at offset %d abort, and both are of one transaction",
                    "commit",
                    "abort",
                ),
                offset="place",
                producer_id="producer_id",
                producer_epoch="producer_epoch",
            )
        )
    )


def neighbours(spoken: DataFrame) -> DataFrame:
    """Pairs of consecutive markers with different outcomes and the same producer epoch.

    The partition has no batch of the producer between the two markers. ``before_*`` are columns of the first marker;
    ``before_epoch`` is the epoch of the data that the first marker ended, null if it ended none.
    """
    key = ["replica", "producer_id"]
    ended = spoken.where("marker_offset is not null")
    # Aggregate before sorting: hardly any epoch has markers of both outcomes in one partition.
    both = (
        ended.groupBy(*key, "marker_epoch")
        .agg(_count("commit").alias("commits"), _count("abort").alias("aborts"))
        .where("commits > 0 and aborts > 0")
        .select(*key)
        .distinct()
    )
    order = Window.partitionBy(*key).orderBy("ended")
    follows = F.col("first_offset").isNull() & F.col("plain_offset").isNull()
    return (
        ended.join(F.broadcast(both), key, "left_semi")
        .withColumn("before_outcome", F.lag("outcome").over(order))
        .withColumn("before_offset", F.lag("marker_offset").over(order))
        .withColumn("before_epoch", F.lag("last_epoch").over(order))
        .withColumn("same_epoch", F.lag("marker_epoch").over(order) == F.col("marker_epoch"))
        .where(follows & F.col("same_epoch") & (F.col("outcome") != F.col("before_outcome")))
        .select(
            *key,
            "topic",
            "partition",
            F.col("marker_epoch").alias("producer_epoch"),
            "outcome",
            "marker_offset",
            "before_outcome",
            "before_offset",
            "before_epoch",
        )
    )


def neighbour_findings(pairs: DataFrame, decisions: DataFrame, ids: DataFrame) -> DataFrame:
    """Findings for ``neighbours`` that no coordinator decided: an abort right after a commit, or a commit next to an abort.

    The pairs are only checked if all decisions are known. Kafka legally writes these pairs:

    - Below transaction version 2 all transactions of a producer have one epoch. A partition that was added but not written
      (the client drops its batches at abortTransaction) has a marker right after the previous marker: a decision lists
      the partition.
    - A coordinator that restarts sends the markers of its decision again, with the same outcome. If the leader handles such
      a request late, the marker may even follow the next transaction's marker. All of them belong to a decision.
    - InitProducerId and the transaction timeout abort with a higher epoch (TransactionMetadata.prepareFenceProducerEpoch),
      and transaction version 2 raises the epoch with each decision (prepareAbortOrCommit): the epochs differ.
    - An operator (kafka-transactions abort) writes an abort that no coordinator decided, with the epoch of an open
      transaction's data. A commit of the coordinator may follow the abort. The abort may also follow a commit of that
      epoch, if the transaction was open when the tool listed it, and had ended when the tool wrote the abort: this is a
      warning. If the commit ended no data of its epoch, there was no transaction that the tool could have seen. No
      operator's tool writes a commit.
    """
    key = ["producer_id", "producer_epoch", "topic", "partition"]
    listed = (
        decisions.withColumn("listed", F.explode("partitions"))
        .select("producer_id", "producer_epoch", "listed.topic", "listed.partition", "decision")
        .groupBy(*key)
        .agg(F.collect_set("decision").alias("decided"))
    )
    committed, aborted = (
        F.coalesce(F.array_contains("decided", kind), F.lit(False)) for kind in ("commit", "abort")
    )
    last_is_abort = F.col("outcome") == "abort"
    commit = F.when(last_is_abort, F.col("before_offset")).otherwise(F.col("marker_offset"))
    wrong = F.when(~committed, F.struct(commit.alias("offset"), F.lit("commit").alias("outcome"))).when(
        last_is_abort & ~aborted,
        F.struct(F.col("marker_offset").alias("offset"), F.lit("abort").alias("outcome")),
    )
    by_operator = committed & (F.col("before_epoch") == F.col("producer_epoch"))
    return (
        pairs.join(ids.select("producer_id"), "producer_id", "left_semi")
        .join(listed, key, "left")
        .withColumn("by_operator", F.coalesce(by_operator, F.lit(False)))
        .withColumn("wrong", wrong)
        .where("wrong is not null")
        .groupBy("replica", "producer_id", "producer_epoch", "wrong")
        .agg(
            F.min("by_operator").alias("by_operator"),
            F.min(F.least("before_offset", "marker_offset")).alias("first"),
            F.max(F.greatest("before_offset", "marker_offset")).alias("last"),
        )
        .select(
            finding(
                "mixed_outcome",
                F.concat(
                    F.format_string(
                        "the coordinator never decided %s here in this epoch; at offset %d is a marker that contradicts it",
                        "wrong.outcome",
                        F.when(F.col("first") == F.col("wrong.offset"), F.col("last")).otherwise(
                            F.col("first")
                        ),
                    ),
                    F.when(
                        F.col("by_operator"), F.lit("; legal if an operator aborted at that moment")
                    ).otherwise(F.lit("")),
                ),
                F.when(F.col("by_operator"), WARNING).otherwise(VIOLATION),
                offset="wrong.offset",
                producer_id="producer_id",
                producer_epoch="producer_epoch",
            )
        )
    )
