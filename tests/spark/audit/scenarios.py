"""Cases of partitions, each with exactly those findings that the audit must report. The topics of a case have its name."""

from __future__ import annotations

from collections.abc import Callable

from tests.spark.audit.literal import COPIED, SEQUENCES, STOPPED, World

Expected = set[tuple[str, str, int, int | None]]
"""The expected findings, each as (name, topic, partition, offset)."""
Story = Callable[[World], Expected]

BROKEN: dict[str, Story] = {}
LEGAL: dict[str, Story] = {}
DAY_MS = 86_400_000


def broken(story: Story) -> Story:
    BROKEN[story.__name__] = story
    return story


def legal(story: Callable[[World], None]) -> Callable[[World], None]:
    def nothing(world: World) -> Expected:
        story(world)
        return set()

    LEGAL[story.__name__] = nothing
    return story


# -- violations and warnings ------------------------------------------------------------------------------------


@broken
def duplicate(world: World) -> Expected:
    log, producer = world.log("duplicate"), world.producer()
    log.data(producer, sequence=0, length=3, transactional=False)
    log.data(producer, sequence=3, length=3, transactional=False)
    again = log.data(producer, sequence=0, length=3, transactional=False)
    # The next batch continues after the highest sequence, which is not a gap.
    log.data(producer, sequence=6, length=3, transactional=False)
    return {("duplicated_sequence", "duplicate", 0, again)}


@broken
def partly_again(world: World) -> Expected:
    log, producer = world.log("partly_again"), world.producer()
    log.data(producer, sequence=0, length=5, transactional=False)
    again = log.data(producer, sequence=3, length=5, transactional=False)
    return {("duplicated_sequence", "partly_again", 0, again)}


@broken
def gap(world: World) -> Expected:
    log, producer = world.log("gap"), world.producer()
    log.data(producer, sequence=0, length=3, transactional=False)
    behind = log.data(producer, sequence=5, length=3, transactional=False)
    log.data(producer, sequence=8, length=3, transactional=False)
    return {("sequence_gap", "gap", 0, behind)}


@broken
def gap_over_the_top(world: World) -> Expected:
    log, producer = world.log("gap_over_the_top"), world.producer()
    log.data(producer, sequence=SEQUENCES - 2, length=4, transactional=False)
    behind = log.data(producer, sequence=3, transactional=False)
    return {("sequence_gap", "gap_over_the_top", 0, behind)}


@broken
def gap_at_a_new_epoch(world: World) -> Expected:
    log, producer = world.log("gap_at_a_new_epoch"), world.producer()
    log.data(producer, epoch=0, sequence=0, transactional=False)
    behind = log.data(producer, epoch=1, sequence=4, transactional=False)
    return {("sequence_gap", "gap_at_a_new_epoch", 0, behind)}


@broken
def gap_after_the_first_marker(world: World) -> Expected:
    """Data begins at sequence 2, although the leader has an entry of the producer, from a marker without data."""
    log, producer = world.log("gap_after_the_first_marker"), world.begin("gap-after-marker")
    world.state("gap-after-marker", producer, 0, "Ongoing", [(log.topic, 0)])
    world.state("gap-after-marker", producer, 1, "PrepareCommit", [(log.topic, 0)])
    log.marker(producer, 1)
    world.state("gap-after-marker", producer, 1, "CompleteCommit", [])
    behind = log.offset
    world.transaction("gap-after-marker", producer, 1, [log], sequence=2)
    return {("sequence_gap", log.topic, 0, behind)}


@broken
def offsets_lost(world: World) -> Expected:
    """Offsets are lost. The audit reports them once, and does not report the missing sequences as well."""
    log, producer = world.log("offsets_lost"), world.producer()
    log.data(producer, sequence=0, length=3, transactional=False)
    log.skip(3)
    behind = log.data(producer, sequence=6, length=3, transactional=False)
    return {("lost_offsets", "offsets_lost", 0, behind)}


@broken
def overlapping(world: World) -> Expected:
    log = world.log("overlapping")
    log.plain(3)
    log.skip(-1)
    log.roll()
    return {("overlapping_offsets", "overlapping", 0, log.plain(2))}


@broken
def epoch_fell(world: World) -> Expected:
    log, producer = world.log("epoch_fell"), world.producer()
    log.data(producer, epoch=0, sequence=0, transactional=False)
    log.data(producer, epoch=2, sequence=0, transactional=False)
    zombie = log.data(producer, epoch=1, sequence=0, transactional=False)
    log.data(producer, epoch=2, sequence=1, transactional=False)
    return {("epoch_regression", "epoch_fell", 0, zombie)}


@broken
def late(world: World) -> Expected:
    """Data of epoch 0 follows the marker that ended the transaction.

    The audit does not also report it as an open transaction.
    """
    log, producer = world.log("late"), world.begin("late")
    world.transaction("late", producer, 0, [log])
    zombie = log.data(producer, epoch=0, sequence=2)
    return {("late_batch", "late", 0, zombie)}


@broken
def late_between(world: World) -> Expected:
    log, producer = world.log("late_between"), world.begin("late-between")
    world.transaction("late-between", producer, 0, [log])
    zombie = log.data(producer, epoch=0, sequence=2)
    world.transaction("late-between", producer, 1, [log])
    return {("late_batch", "late_between", 0, zombie)}


@broken
def marker_missing_at_the_end(world: World) -> Expected:
    one, two = world.log("marker_missing_at_the_end"), world.log("marker_missing_at_the_end", 1)
    producer = world.begin("missing-end")
    places = world.transaction("missing-end", producer, 0, [one, two], unmarked=[two])
    return {("missing_marker", two.topic, 1, places[two][0])}


@broken
def marker_missing_between(world: World) -> Expected:
    one, two = world.log("marker_missing_between"), world.log("marker_missing_between", 1)
    producer = world.begin("missing-between")
    places = world.transaction("missing-between", producer, 0, [one, two], unmarked=[two])
    world.transaction("missing-between", producer, 1, [one, two])
    return {("missing_marker", two.topic, 1, places[two][0])}


@broken
def marker_missing_without_new_epochs(world: World) -> Expected:
    """Transaction version 1: all markers of a producer have the same epoch, and are counted."""
    one, two = (
        world.log("marker_missing_without_new_epochs"),
        world.log("marker_missing_without_new_epochs", 1),
    )
    producer = world.begin("missing-v1", 1)
    world.transaction("missing-v1", producer, 0, [one, two], version=1)
    world.transaction("missing-v1", producer, 0, [one, two], version=1, sequence=2, unmarked=[two])
    world.transaction("missing-v1", producer, 0, [one, two], version=1, sequence=4)
    # It is not known which data the marker should have ended.
    return {("missing_marker", two.topic, 1, None)}


@broken
def marker_missing_without_a_coordinator(world: World) -> Expected:
    log, producer = world.log("marker_missing_without_a_coordinator"), world.begin("marker-missing")
    first = log.data(producer, epoch=0)
    log.data(producer, epoch=1)
    log.marker(producer, 2)
    return {("missing_marker", log.topic, 0, first)}


@broken
def mixed(world: World) -> Expected:
    one, two = world.log("mixed"), world.log("mixed", 1)
    producer = world.begin("mixed")
    places = world.transaction("mixed", producer, 0, [one, two], marked_otherwise=[two])
    world.transaction("mixed", producer, 1, [one, two])
    return {("mixed_outcome", "mixed", 1, places[two][1])}


@broken
def mixed_without_new_epochs(world: World) -> Expected:
    one, two = world.log("mixed_without_new_epochs"), world.log("mixed_without_new_epochs", 1)
    producer = world.begin("mixed-v1", 1)
    world.transaction("mixed-v1", producer, 0, [one, two], "abort", version=1)
    world.transaction("mixed-v1", producer, 0, [one, two], version=1, sequence=2)
    places = world.transaction(
        "mixed-v1", producer, 0, [one, two], version=1, sequence=4, marked_otherwise=[two]
    )
    world.transaction("mixed-v1", producer, 0, [one, two], version=1, sequence=6)
    return {("mixed_outcome", two.topic, 1, places[two][1])}


@broken
def mixed_without_a_coordinator(world: World) -> Expected:
    logs = [world.log("mixed_without_a_coordinator", index) for index in range(3)]
    producer = world.begin("mixed-forgotten")
    offsets = []
    for log in logs:
        log.data(producer)
        offsets.append(log.marker(producer, 1, "abort" if log is logs[1] else "commit"))
    return {("mixed_outcome", logs[1].topic, 1, offsets[1])}


@broken
def mixed_offsets_without_a_coordinator(world: World) -> Expected:
    """One output has another outcome than the other output and the group's offsets: only this output has a finding."""
    output, group = world.log("mixed_offsets_without_a_coordinator"), world.log("__consumer_offsets", 4)
    other, producer = world.log("mixed_offsets_without_a_coordinator", 1), world.begin("mixed-offsets")
    for log in (output, other, group):
        log.data(producer)
    world.commits(group, 0, producer, 0)
    output.marker(producer, 1)
    group.marker(producer, 1)
    return {("mixed_outcome", other.topic, 1, other.marker(producer, 1, "abort"))}


@broken
def apart_from_offsets(world: World) -> Expected:
    """The output has an abort and the group's offsets have a commit of one transaction.

    Nothing shows which of the outcomes is right, as the decision does not list the output partition.
    """
    output, group = world.log("apart_from_offsets"), world.log("__consumer_offsets", 5)
    producer = world.begin("apart")
    world.state("apart", producer, 0, "Ongoing", [(group.topic, 5)])
    output.data(producer)
    world.commits(group, group.data(producer), producer, 0)
    world.state("apart", producer, 1, "PrepareCommit", [(group.topic, 5)])
    output.marker(producer, 1, "abort")
    offset = group.marker(producer, 1)
    world.state("apart", producer, 1, "CompleteCommit", [])
    return {("offsets_apart", group.topic, 5, offset)}


@broken
def hanging(world: World) -> Expected:
    """A partition has open data, but the coordinator's transaction has ended, and never had this partition."""
    one, two = world.log("hanging"), world.log("hanging", 1)
    producer = world.begin("hanging")
    world.transaction("hanging", producer, 0, [one])
    first = two.data(producer, epoch=1)
    two.plain(5)
    return {("hanging_transaction", "hanging", 1, first)}


@broken
def hanging_beside(world: World) -> Expected:
    """A partition has open data, but the coordinator's ongoing transaction of the id lacks this partition."""
    one, two = world.log("hanging_beside"), world.log("hanging_beside", 1)
    producer = world.begin("hanging-beside")
    world.transaction("hanging-beside", producer, 0, [one], stop_after="Ongoing")
    return {("hanging_transaction", two.topic, 1, two.data(producer))}


@broken
def hanging_of_no_known_id(world: World) -> Expected:
    log, producer = world.log("hanging_of_no_known_id"), world.producer()
    return {("hanging_transaction", log.topic, 0, log.data(producer))}


@broken
def lost_prepare(world: World) -> Expected:
    log, producer = world.log("lost_prepare"), world.begin("lost-prepare")
    world.state("lost-prepare", producer, 0, "Ongoing", [(log.topic, 0)])
    log.data(producer)
    log.marker(producer, 1)
    offset = world.state("lost-prepare", producer, 1, "CompleteCommit", [])
    return {("illegal_transition", "__transaction_state", 0, offset)}


@broken
def damaged(world: World) -> Expected:
    """Damage hides a part of the sequences and a marker, which are not reported as well."""
    log, producer = world.log("damaged"), world.begin("damaged")
    world.transaction("damaged", producer, 0, [log])
    world.state("damaged", producer, 1, "Ongoing", [(log.topic, 0)])
    log.data(producer, epoch=1, sequence=0)
    log.damage()
    log.data(producer, epoch=1, sequence=2)
    world.state("damaged", producer, 2, "PrepareCommit", [(log.topic, 0)])
    log.damage()
    world.state("damaged", producer, 2, "CompleteCommit", [])
    return {("damage", "damaged", 0, None)}


@broken
def torn(world: World) -> Expected:
    log = world.log("torn")
    log.plain()
    log.damage("torn tail: 17 bytes after the last batch are too few for another")
    return {("torn_tail", "torn", 0, None)}


@broken
def torn_before_the_end(world: World) -> Expected:
    log = world.log("torn_before_the_end")
    log.plain()
    log.damage("torn tail: 17 bytes after the last batch are too few for another", length=0)
    log.roll()
    log.plain()
    return {("damage", log.topic, 0, None)}


@broken
def zeros_after_a_clean_stop(world: World) -> Expected:
    """A log ends in zeros after a clean stop, although a broker that stops truncates preallocated space."""
    log = world.log("zeros_after_a_clean_stop", log_dir=STOPPED)
    log.plain()
    log.zeros()
    return {("damage", log.topic, 0, None)}


@broken
def zeros_for_a_whole_log(world: World) -> Expected:
    log = world.log("zeros_for_a_whole_log", log_dir=STOPPED)
    log.zeros()
    return {("damage", log.topic, 0, None)}


@broken
def zeros_below_the_recovery_point(world: World) -> Expected:
    """A log has zeros below the recovery point, where batches must have been flushed."""
    log = world.log("zeros_below_the_recovery_point")
    log.plain()
    log.zeros()
    world.recovery_points[log.topic, 0] = 2
    return {("damage", log.topic, 0, None)}


@broken
def zeros_before_a_flushed_segment(world: World) -> Expected:
    """An earlier segment ends in zeros, although it was truncated and flushed when the next one began."""
    log = world.log("zeros_before_a_flushed_segment")
    log.plain()
    log.zeros()
    log.roll()
    world.recovery_points[log.topic, 0] = log.plain()
    return {("damage", log.topic, 0, None)}


@broken
def zeros_before_the_last_segment(world: World) -> Expected:
    """Zeros above the recovery point are only a warning: a power failure leaves them, and the next start removes them."""
    log = world.log("zeros_before_the_last_segment")
    log.plain()
    log.zeros()
    log.roll()
    log.plain()
    return {("damage", log.topic, 0, None)}


@broken
def zeros_between_batches(world: World) -> Expected:
    log = world.log("zeros_between_batches")
    log.plain()
    log.zeros()
    log.plain()
    return {("damage", log.topic, 0, None)}


@broken
def zeros_for_batches(world: World) -> Expected:
    """Lost offsets are reported once, and not also as the zeros in their place."""
    log = world.log("zeros_for_batches")
    log.plain()
    log.zeros(2)
    return {("lost_offsets", log.topic, 0, log.plain())}


@broken
def copies_apart(world: World) -> Expected:
    """Two replicas have the same leader epoch and offset, but different batches."""
    one, two = world.log("copies_apart"), world.log("copies_apart", log_dir="/data-2")
    producer, stranger = world.producer(), world.producer()
    for log in (one, two):
        log.data(producer, transactional=False)
    two.plain()
    offset = one.data(stranger, transactional=False)
    two.plain()
    return {("replicas_differ", "copies_apart", 0, offset)}


@broken
def committed_copies_apart(world: World) -> Expected:
    """A batch has an older leader epoch but is below its replica's high watermark: an acknowledged batch was replaced."""
    one, two = world.log("committed_copies_apart"), world.log("committed_copies_apart", log_dir="/data-2")
    world.high_watermarks["/data-2"] = {(one.topic, 0): 2}
    for log in (one, two):
        log.plain()
    offset = two.data(world.producer(), transactional=False)
    one.leader_epoch = 1
    one.plain(2)
    return {("replicas_differ", one.topic, 0, offset)}


@broken
def transactional_bit_cleared(world: World) -> Expected:
    """Consumers with read_committed read the batch, although its transaction was aborted."""
    log, producer = world.log("transactional_bit_cleared"), world.begin("bit-cleared")
    world.transaction("bit-cleared", producer, 0, [log])
    world.state("bit-cleared", producer, 1, "Ongoing", [(log.topic, 0)])
    cleared = log.data(producer, 1, 0, transactional=False)
    log.data(producer, 1, 1)
    world.state("bit-cleared", producer, 2, "PrepareAbort", [(log.topic, 0)])
    log.marker(producer, 2, "abort")
    world.state("bit-cleared", producer, 2, "CompleteAbort", [])
    return {("not_transactional", log.topic, 0, cleared)}


@broken
def transactional_bit_cleared_in_a_copy(world: World) -> Expected:
    one = world.log("transactional_bit_cleared_in_a_copy")
    two = world.log(one.topic, log_dir="/data-2")
    producer = world.begin("bit-cleared-in-a-copy")
    places = world.transaction("bit-cleared-in-a-copy", producer, 0, [one])
    cleared = two.data(producer, 0, 0, 2, transactional=False)
    two.marker(producer, 1)
    assert places[one][0] == cleared
    return {("not_transactional", one.topic, 0, cleared)}


@broken
def commit_and_abort_of_one_epoch(world: World) -> Expected:
    log, producer = world.log("commit_and_abort_of_one_epoch"), world.begin("both-markers")
    world.transaction("both-markers", producer, 0, [log])
    return {("mixed_outcome", log.topic, 0, log.marker(producer, 1, "abort"))}


@broken
def abort_before_the_commit_of_one_epoch(world: World) -> Expected:
    """An abort and a commit marker have the same epoch. The coordinator's decision shows which of them is wrong."""
    log, producer = world.log("abort_before_the_commit_of_one_epoch"), world.begin("abort-first")
    world.state("abort-first", producer, 0, "Ongoing", [(log.topic, 0)])
    log.data(producer)
    world.state("abort-first", producer, 1, "PrepareCommit", [(log.topic, 0)])
    wrong = log.marker(producer, 1, "abort")
    log.marker(producer, 1)
    world.state("abort-first", producer, 1, "CompleteCommit", [])
    return {("mixed_outcome", log.topic, 0, wrong)}


@broken
def abort_behind_a_commit_of_its_epoch(world: World) -> Expected:
    """Transaction version 1 without a decision to abort: a warning, as an operator's abort may have crossed the commit."""
    log, producer = world.log("abort_behind_a_commit_of_its_epoch"), world.begin("abort-behind", 1)
    world.transaction("abort-behind", producer, 0, [log], version=1)
    wrong = log.marker(producer, 0, "abort")
    world.transaction("abort-behind", producer, 0, [log], version=1, sequence=2)
    return {("mixed_outcome", log.topic, 0, wrong)}


@broken
def commit_behind_an_abort_of_its_epoch(world: World) -> Expected:
    """A commit follows an abort of the same epoch, although an operator's tool never writes a commit."""
    log, producer = world.log("commit_behind_an_abort_of_its_epoch"), world.begin("commit-behind", 1)
    world.transaction("commit-behind", producer, 0, [log], "abort", version=1)
    return {("mixed_outcome", log.topic, 0, log.marker(producer, 0))}


@broken
def commit_before_the_abort_that_was_decided(world: World) -> Expected:
    log, producer = world.log("commit_before_the_abort_that_was_decided"), world.begin("commit-before", 1)
    world.state("commit-before", producer, 0, "Ongoing", [(log.topic, 0)], 1)
    log.data(producer)
    world.state("commit-before", producer, 0, "PrepareAbort", [(log.topic, 0)], 1)
    wrong = log.marker(producer, 0)
    log.marker(producer, 0, "abort")
    world.state("commit-before", producer, 0, "CompleteAbort", [], 1)
    return {("mixed_outcome", log.topic, 0, wrong)}


@broken
def two_markers_without_data(world: World) -> Expected:
    """An abort marker follows a commit marker. It is wrong: no data are between them that it could end."""
    log, producer = world.log("two_markers_without_data", start=7), world.begin("two-markers")
    world.state("two-markers", producer, 0, "Ongoing", [(log.topic, 0)])
    world.state("two-markers", producer, 1, "PrepareCommit", [(log.topic, 0)])
    log.marker(producer, 1)
    world.state("two-markers", producer, 1, "CompleteCommit", [])
    return {("mixed_outcome", log.topic, 0, log.marker(producer, 1, "abort"))}


@broken
def records_taken_out(world: World) -> Expected:
    log = world.log("records_taken_out")
    log.plain(3)
    return {
        ("record_count", log.topic, 0, log.data(world.producer(), length=5, records=4, transactional=False))
    }


@broken
def more_records_than_offsets(world: World) -> Expected:
    """A batch with more records than offsets is an error even in a compacted log."""
    log = world.log("more_records_than_offsets")
    world.cleaned[log.topic, 0] = 20
    log.data(world.producer(), length=5, records=2, transactional=False)
    return {
        ("record_count", log.topic, 0, log.data(world.producer(), length=2, records=3, transactional=False))
    }


@broken
def leader_epoch_fell(world: World) -> Expected:
    log = world.log("leader_epoch_fell")
    for log.leader_epoch in (0, 2):
        log.plain()
    log.leader_epoch = 1
    fallen = log.plain()
    log.plain()
    log.leader_epoch = 3
    log.plain()
    return {("leader_epoch_regression", log.topic, 0, fallen)}


@broken
def marker_of_an_unknown_producer(world: World) -> Expected:
    log = world.log("marker_of_an_unknown_producer")
    return {("unexpected_producer", log.topic, 0, log.marker(world.producer(), 0, "abort"))}


@broken
def partition_gone(world: World) -> Expected:
    here, gone = world.log("partition_gone"), world.log("partition_gone", 1)
    world.created |= {(here.topic, 0): 0, (here.topic, 1): 0}
    world.transaction("partition-gone", world.begin("partition-gone"), 0, [here, gone])
    world.remove(gone)
    return {("lost_partition", gone.topic, 1, None)}


@broken
def topic_gone(world: World) -> Expected:
    gone = world.log("topic_gone")
    world.created[gone.topic, 0] = 0
    world.transaction("topic-gone", world.begin("topic-gone"), 0, [gone])
    world.remove(gone)
    return {("lost_partition", gone.topic, 0, None)}


# -- legal cases ------------------------------------------------------------------------------------------------


@legal
def sequences_go_round(world: World) -> None:
    log, producer = world.log("sequences_go_round"), world.producer()
    log.data(producer, sequence=SEQUENCES - 2, length=3, transactional=False)
    log.data(producer, sequence=1, length=3, transactional=False)
    other = world.producer()
    log.data(other, sequence=SEQUENCES - 3, length=3, transactional=False)
    log.data(other, sequence=0, length=3, transactional=False)


@legal
def new_epochs_begin_at_zero(world: World) -> None:
    log, producer = world.log("new_epochs_begin_at_zero"), world.producer()
    log.data(producer, epoch=0, sequence=0, length=3, transactional=False)
    log.data(producer, epoch=1, sequence=0, length=3, transactional=False)
    log.data(producer, epoch=4, sequence=0, transactional=False)


@legal
def log_start_moved(world: World) -> None:
    """Retention or DeleteRecords removed the first batches, and the marker of the transaction was removed as well."""
    log, producer = world.log("log_start_moved", start=1000), world.begin("log-start")
    gone = world.log("log_start_moved", 1)
    world.transaction("log-start", producer, 0, [gone, log], unmarked=[log])
    log.offset, log.position = 5000, 0
    world.batches[:] = [each for each in world.batches if each[1:3] != ("log_start_moved", 0)]
    world.transaction("log-start", producer, 1, [log], sequence=0)
    log.data(world.producer(), sequence=77, transactional=False)


@legal
def forgotten_producer(world: World) -> None:
    """A producer was idle for longer than producer.id.expiration.ms, so its leader has forgotten it.

    The leader then appends the same batch again, and a batch with an older epoch.
    """
    log, producer = world.log("forgotten_producer"), world.producer()
    log.data(producer, epoch=3, sequence=5, transactional=False, time_ms=0)
    log.data(producer, epoch=3, sequence=5, transactional=False, time_ms=DAY_MS)
    log.data(producer, epoch=3, sequence=900, transactional=False, time_ms=2 * DAY_MS)
    log.data(producer, epoch=1, sequence=7, transactional=False, time_ms=3 * DAY_MS)


@legal
def cleaned(world: World) -> None:
    """Compaction removed records, whole batches and markers; the gaps are before the last segment."""
    log, producer = world.log("cleaned"), world.begin("cleaned")
    world.cleaned[log.topic, 0] = 20
    world.state("cleaned", producer, 0, "Ongoing", [("cleaned", 0)])
    log.data(producer, 0, 0, length=10, records=1)
    log.skip(5)
    log.data(producer, 0, 15, length=5)
    world.state("cleaned", producer, 1, "PrepareCommit", [("cleaned", 0)])
    log.marker(producer, 1)
    world.state("cleaned", producer, 1, "CompleteCommit", [])
    # All data of the next transaction are removed, so its marker may be removed too.
    world.state("cleaned", producer, 1, "Ongoing", [("cleaned", 0)])
    log.skip(5)
    world.state("cleaned", producer, 2, "PrepareCommit", [("cleaned", 0)])
    world.state("cleaned", producer, 2, "CompleteCommit", [])
    world.transaction("cleaned", producer, 2, [log])
    log.roll()
    log.plain()


@legal
def cleaned_by_the_checkpoint(world: World) -> None:
    log = world.log("cleaned_by_the_checkpoint")
    world.cleaned[log.topic, 0] = 20
    log.plain()
    log.skip(10)
    log.plain()
    log.roll()
    log.plain()


@legal
def transactions_of_both_versions(world: World) -> None:
    logs = [world.log("transactions_of_both_versions", index) for index in range(3)]
    producer = world.begin("both")
    for epoch, outcome in enumerate(("commit", "abort", "commit")):
        world.transaction("both", producer, epoch, logs, outcome)
    for number, outcome in enumerate(("abort", "commit", "commit", "abort")):
        world.transaction("both", producer, 3, logs[:2], outcome, version=1, sequence=2 * number)


@legal
def fenced_by_its_successor(world: World) -> None:
    """Transaction version 1: InitProducerId aborts a transaction, and its decision has the raised epoch."""
    log, producer = world.log("fenced_by_its_successor"), world.begin("fenced", 1)
    world.state("fenced", producer, 0, "Ongoing", [(log.topic, 0)], 1)
    log.data(producer, 0)
    world.state("fenced", producer, 1, "PrepareAbort", [(log.topic, 0)], 1)
    log.marker(producer, 1, "abort")
    world.state("fenced", producer, 1, "CompleteAbort", [], 1)
    world.state("fenced", producer, 2, "Empty", None, 1)
    world.transaction("fenced", producer, 2, [log], version=1)


@legal
def nothing_to_abort(world: World) -> None:
    """A transactional id aborts without partitions, and then commits a transaction with a partition without data."""
    log, producer = world.log("nothing_to_abort"), world.begin("nothing")
    log.plain()
    world.state("nothing", producer, 1, "PrepareAbort", [])
    world.state("nothing", producer, 1, "CompleteAbort", [])
    world.state("nothing", producer, 1, "Ongoing", [(log.topic, 0)])
    world.state("nothing", producer, 2, "PrepareCommit", [(log.topic, 0)])
    log.marker(producer, 2)
    world.state("nothing", producer, 2, "CompleteCommit", [])
    world.transaction("nothing", producer, 2, [log])


@legal
def markers_sent_again(world: World) -> None:
    """The coordinator restarted before the Complete record was written, and sent the markers again."""
    log, producer = world.log("markers_sent_again"), world.begin("again")
    world.transaction("again", producer, 0, [log], stop_after="Prepare")
    log.marker(producer, 1)
    world.state("again", producer, 1, "CompleteCommit", [])
    world.transaction("again", producer, 1, [log])


@legal
def ended_by_an_operator(world: World) -> None:
    """An operator's kafka-transactions aborts with the data's own epoch.

    The coordinator does not know this, and commits later.
    """
    log, producer = world.log("ended_by_an_operator"), world.begin("operator")
    world.transaction("operator", producer, 0, [log])
    world.state("operator", producer, 1, "Ongoing", [(log.topic, 0)])
    log.data(producer, 1)
    log.marker(producer, 1, "abort")
    world.state("operator", producer, 2, "PrepareCommit", [(log.topic, 0)])
    log.marker(producer, 2)
    world.state("operator", producer, 2, "CompleteCommit", [])


@legal
def ended_by_an_operator_without_new_epochs(world: World) -> None:
    """Transaction version 1: the coordinator's commit directly follows the operator's abort, in the same epoch."""
    log, producer = world.log("ended_by_an_operator_without_new_epochs"), world.begin("operator-v1", 1)
    world.transaction("operator-v1", producer, 0, [log], version=1)
    world.state("operator-v1", producer, 0, "Ongoing", [(log.topic, 0)], 1)
    log.data(producer, 0, 2)
    for _ in range(2):
        log.marker(producer, 0, "abort")
    world.state("operator-v1", producer, 0, "PrepareCommit", [(log.topic, 0)], 1)
    log.marker(producer, 0)
    world.state("operator-v1", producer, 0, "CompleteCommit", [], 1)


@legal
def markers_right_behind_each_other(world: World) -> None:
    """Transaction version 1: markers of transactions without data directly follow each other.

    The markers are those of an abort (sent twice), of a commit, and of an abort by timeout.
    """
    log, producer = world.log("markers_right_behind_each_other"), world.begin("behind-each-other", 1)
    world.transaction("behind-each-other", producer, 0, [log], version=1)
    for epoch, kind, times in ((0, "Abort", 2), (0, "Commit", 1), (1, "Abort", 1)):
        world.state("behind-each-other", producer, 0, "Ongoing", [(log.topic, 0)], 1)
        world.state("behind-each-other", producer, epoch, f"Prepare{kind}", [(log.topic, 0)], 1)
        for _ in range(times):
            log.marker(producer, epoch, kind.lower())
        world.state("behind-each-other", producer, epoch, f"Complete{kind}", [], 1)


@legal
def under_way(world: World) -> None:
    one, two = world.log("under_way"), world.log("under_way", 1)
    producer = world.begin("under-way")
    world.transaction("under-way", producer, 0, [one, two])
    world.transaction("under-way", producer, 1, [one, two], stop_after="Ongoing")


@legal
def decided_not_delivered(world: World) -> None:
    """All nodes stopped between the decision and its markers, which the coordinator sends after its restart."""
    one, two = world.log("decided_not_delivered"), world.log("decided_not_delivered", 1)
    producer = world.begin("decided")
    world.transaction("decided", producer, 0, [one, two], stop_after="Prepare", unmarked=[two])


@legal
def new_producer_id(world: World) -> None:
    """The epochs of a transactional id are exhausted: it gets a new producer id, and another one after it has expired."""
    log, producer = world.log("new_producer_id"), world.begin("overflow")
    world.state("overflow", producer, 32766, "Empty")
    world.state("overflow", producer, 32766, "Ongoing", [(log.topic, 0)])
    log.data(producer, 32766)
    world.state("overflow", producer, 32767, "PrepareCommit", [(log.topic, 0)])
    log.marker(producer, 32767)
    successor = world.producer()
    world.state("overflow", successor, 0, "CompleteCommit", [])
    world.transaction("overflow", successor, 0, [log])


@legal
def deleted_topic(world: World) -> None:
    """A decision lists a partition that was deleted since, and another that was deleted and created again."""
    log, producer = world.log("deleted_topic"), world.begin("deleted")
    gone, created_again = world.log("deleted_topic", 1), world.log("deleted_topic", 2)
    world.transaction("deleted", producer, 0, [log, gone, created_again], unmarked=[gone, created_again])
    world.batches[:] = [
        each for each in world.batches if each[1:3] not in (("deleted_topic", 1), ("deleted_topic", 2))
    ]
    created_again.offset = created_again.position = 0
    world.transaction("deleted", producer, 1, [log, created_again])


@legal
def copy_that_lags(world: World) -> None:
    one, two = world.log("copy_that_lags"), world.log("copy_that_lags", log_dir="/data-2")
    producer, before = world.begin("lags"), len(world.batches)
    world.transaction("lags", producer, 0, [one])
    batch = next(each for each in world.batches[before:] if each[1] == one.topic)
    world.batches.append(("/data-2", *batch[1:]))
    assert two.offset == 0


@legal
def offsets_with_output(world: World) -> None:
    output, group = world.log("offsets_with_output"), world.log("__consumer_offsets", 3)
    producer = world.begin("loop")
    world.transaction("loop", producer, 0, [output, group])
    world.transaction("loop", producer, 1, [output, group], "abort")


@legal
def offsets_with_forgotten_decisions(world: World) -> None:
    """Transaction version 1: all transactions have one epoch, so nothing shows which markers belong together."""
    output, group = world.log("offsets_with_forgotten_decisions"), world.log("__consumer_offsets", 6)
    producer = world.begin("forgotten")
    for number, outcome in enumerate(("commit", "abort", "commit")):
        output.data(producer, 0, number)
        world.commits(group, group.data(producer, 0, number), producer, 0)
        for log in (output, group):
            log.marker(producer, 0, outcome)


@legal
def commits_and_aborts_share_an_epoch(world: World) -> None:
    """Transaction version 1: commits and aborts share an epoch, and some transactions wrote nothing to the partition."""
    log, producer = world.log("commits_and_aborts_share_an_epoch"), world.begin("shared-epoch", 1)
    world.transaction("shared-epoch", producer, 0, [log], version=1)
    for kind in ("Abort", "Commit"):
        world.state("shared-epoch", producer, 0, "Ongoing", [(log.topic, 0)], 1)
        world.state("shared-epoch", producer, 0, f"Prepare{kind}", [(log.topic, 0)], 1)
        log.marker(producer, 0, kind.lower())
        world.state("shared-epoch", producer, 0, f"Complete{kind}", [], 1)


@legal
def compacted_at_its_leader(world: World) -> None:
    """The follower has fetched the compacted log, and its own checkpoint does not show the compaction."""
    one = world.log("compacted_at_its_leader")
    two = world.log(one.topic, log_dir="/data-2")
    world.cleaned_elsewhere["/data-2"] = {(one.topic, 0): 5}
    producer = world.producer()
    for log in (one, two):
        log.data(producer, length=5, records=2, transactional=False)
        log.roll()
        log.data(producer, sequence=5, transactional=False)


@legal
def idempotent_and_transactional_producers(world: World) -> None:
    log = world.log("idempotent_and_transactional_producers")
    log.data(world.producer(), transactional=False)
    world.transaction("beside-idempotent", world.begin("beside-idempotent"), 0, [log])


@legal
def leader_epochs_grow(world: World) -> None:
    """Batches from before leader epochs existed have no epoch, and the later batches have growing epochs."""
    log = world.log("leader_epochs_grow")
    for log.leader_epoch in (-1, 0, 0, 2, 7):
        log.plain()


@legal
def preallocated(world: World) -> None:
    log = world.log("preallocated")
    log.plain()
    log.zeros()
    rolled = world.log("preallocated", 1)
    rolled.plain()
    rolled.roll()
    rolled.zeros()
    world.recovery_points |= {(log.topic, 0): 1, (log.topic, 1): 1}
    copied = world.log("preallocated", 2, log_dir=COPIED)
    copied.plain()
    copied.zeros()


@legal
def made_anew_and_not_written_yet(world: World) -> None:
    """The topic of the decision was deleted; the new topic with its name has no directory yet."""
    log = world.log("made_anew_and_not_written_yet")
    world.transaction("made-anew", world.begin("made-anew"), 0, [log])
    world.remove(log)
    world.created[log.topic, 0] = world.tick()


@broken
def hole_in_a_copied_partition(world: World) -> Expected:
    """Offsets are missing in a copy without checkpoint files: a warning, as the log may have been compacted."""
    log = world.log("hole_in_a_copied_partition", log_dir=COPIED)
    log.plain()
    log.skip(1)
    return {("lost_offsets", log.topic, 0, log.plain())}


@broken
def unacknowledged_copies(world: World) -> Expected:
    """The last batches of a dead leader are on no other replica: a warning, as its restart truncates them."""
    one, two = world.log("unacknowledged_copies"), world.log("unacknowledged_copies", log_dir="/data-2")
    for log in (one, two):
        log.plain()
    offset = two.data(world.producer(), transactional=False)
    one.leader_epoch = 1
    one.plain(2)
    return {("replicas_differ", one.topic, 0, offset)}
