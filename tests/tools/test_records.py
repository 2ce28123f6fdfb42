"""`odradek produce` and `odradek consume`: the records that they write and show."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from protocol.hashing import partition_of_key
from tests.tools.conftest import Run, objects
from tools.commands.produce import lines_as_they_come


def values(text: str) -> list[str]:
    return [each["value"] for each in objects(text)]


def test_records_come_back_with_keys_headers_and_times(run: Run) -> None:
    run("topic", "create", "r1")
    assert run("produce", "r1", "-k", "key", "-H", "h=1", "-H", "h=2", "one", "two") == "2 records to r1\n"
    first, second = objects(run("consume", "r1", "--json"))
    assert (first["offset"], first["key"], first["value"], first["headers"]) == (
        0,
        "key",
        "one",
        [["h", "1"], ["h", "2"]],
    )
    assert (second["offset"], second["sequence"], second["producer_id"]) == (1, 1, first["producer_id"])
    assert "key  one  {h=1, h=2}" in run("consume", "r1", "-n", "1")


def test_lines_of_standard_input_have_keys_and_tombstones(run: Run) -> None:
    run("topic", "create", "r2:4")
    run("produce", "r2", "-K", ":", "-Z", input="a:1\nb:2\na:\n")
    found = objects(run("consume", "r2", "--json"))
    assert {(each["key"], each["value"], each["partition"]) for each in found} == {
        ("a", "1", partition_of_key(b"a", 4)),
        ("a", None, partition_of_key(b"a", 4)),
        ("b", "2", partition_of_key(b"b", 4)),
    }


def test_without_a_key_the_partitions_take_turns_and_one_can_be_named(run: Run) -> None:
    run("topic", "create", "r3:2")
    run("produce", "r3", "a", "b", "c")
    assert values(run("consume", "r3/0", "--json")) == ["a", "c"]
    run("produce", "r3", "d", "-p", "1")
    assert values(run("consume", "r3/1", "--json")) == ["b", "d"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_written_and_read(run: Run, codec: str) -> None:
    run("topic", "create", f"r4-{codec}")
    run("produce", f"r4-{codec}", *["x" * 100] * 20, "-z", codec)
    found = objects(run("consume", f"r4-{codec}", "--json"))
    assert [each["value"] for each in found] == ["x" * 100] * 20
    assert {each["compression"] for each in found} == {codec}


def test_each_record_has_the_outcome_of_its_transaction(run: Run) -> None:
    """Each record is shown with the outcome of its transaction, even behind the start of another transaction that is still
    open."""
    run("topic", "create", "r5")
    run("produce", "r5", "plain")
    run("produce", "r5", "committed", "-x", "r5-a")
    run("produce", "r5", "aborted", "-x", "r5-a", "--abort")
    run("txn", "hang", "r5-open", "r5", "open")
    run("produce", "r5", "later", "-x", "r5-a")
    run("produce", "r5", "gone", "-x", "r5-b", "--abort")
    seen = [(each.get("value"), each["outcome"]) for each in objects(run("consume", "r5", "-u", "--json"))]
    assert [(value, outcome) for value, outcome in seen if outcome not in ("COMMIT", "ABORT")] == [
        ("plain", None),
        ("committed", "committed"),
        ("aborted", "aborted"),
        ("open", "open"),
        ("later", "committed"),
        ("gone", "aborted"),
    ]
    assert [outcome for _, outcome in seen if outcome in ("COMMIT", "ABORT")] == [
        "COMMIT",
        "ABORT",
        "COMMIT",
        "ABORT",
    ]
    assert values(run("consume", "r5", "--json")) == ["plain", "committed"]
    shown = run("consume", "r5", "-u")
    assert "[open, producer" in shown
    assert "ABORT marker of producer" in shown
    run("txn", "abort", "r5-open")
    assert values(run("consume", "r5", "--json")) == ["plain", "committed", "later"]


def test_many_transactions_of_one_producer_keep_their_outcomes(run: Run) -> None:
    run("topic", "create", "r6")
    for number in range(6):
        run("produce", "r6", str(number), "-x", "r6", *(["--abort"] if number % 2 else []))
    found = {
        each["value"]: each["outcome"]
        for each in objects(run("consume", "r6", "-u", "--json"))
        if "value" in each
    }
    assert [found[str(number)] for number in range(6)] == ["committed", "aborted"] * 3


def test_reading_starts_at_the_given_offset(run: Run) -> None:
    run("topic", "create", "r7")
    run("produce", "r7", *"abcdef")
    assert values(run("consume", "r7", "-o", "4", "--json")) == ["e", "f"]
    assert values(run("consume", "r7", "-o", "-2", "--json")) == ["e", "f"]
    assert values(run("consume", "r7", "-o", "end", "--json")) == []
    time = objects(run("consume", "r7", "-n", "1", "--json"))[0]["timestamp"]
    assert values(run("consume", "r7", "-o", f"@{time}", "-n", "2", "--json")) == ["a", "b"]
    assert values(run("consume", "r7", "-o", "@2100-01-01T00:00:00Z", "--json")) == []


def test_a_group_continues_at_its_committed_offset(run: Run) -> None:
    run("topic", "create", "r8")
    run("produce", "r8", *"abc")
    assert values(run("consume", "r8", "-g", "r8-readers", "-n", "2", "--json")) == ["a", "b"]
    assert values(run("consume", "r8", "-g", "r8-readers", "--json")) == ["c"]
    assert values(run("consume", "r8", "-g", "r8-readers", "--json")) == []


def test_a_format_prints_its_fields(run: Run) -> None:
    run("topic", "create", "r9")
    run("produce", "r9", "-k", "k", "a%b", "-x", "r9")
    assert run("consume", "r9", "--format", r"%t/%p@%o %k=%v %S%%\n") == "r9/0@0 k=a%b committed%\n"


def test_bytes_that_are_no_text_are_hexadecimal(run: Run) -> None:
    run("topic", "create", "r10")
    run("produce", "r10", "caf\udce9")  # a byte of standard input that is not UTF-8
    assert objects(run("consume", "r10", "--json"))[0]["value_hex"] == "636166e9"
    assert "0x636166e9" in run("consume", "r10")


def test_wrong_options_are_refused(run: Run, refused: Callable[..., tuple[int, str]]) -> None:
    assert "--abort needs --transactional-id" in refused("produce", "r11", "x", "--abort")[1]
    assert "a transaction needs --acks all" in refused("produce", "r11", "x", "-x", "i", "--acks", "1")[1]
    run("topic", "create", "r11-format")
    run("produce", "r11-format", "x")
    code, message = refused("consume", "r11-format", "--format", "%q")
    assert (code, "--format: unknown placeholder %q" in message) == (2, True)
    assert "there is no topic none" in refused("consume", "none")[1]
    run("topic", "create", "r11")
    expected = (1, "Error: r11-0: offset 7 is out of range: the log begins at 0 and ends at 0\n")
    assert refused("consume", "r11", "-o", "7") == expected
    assert refused("group", "reset", "r11", "r11", "--to", "7") == expected
    assert "--to seven: expected beginning" in refused("group", "reset", "r11", "r11", "--to", "seven")[1]
    assert run("produce", "r11", "x") == "1 record to r11\n"


def test_acks_of_one_and_none_write_without_a_producer_id(run: Run) -> None:
    run("topic", "create", "r12")
    run("produce", "r12", "one", "--acks", "1")
    run("produce", "r12", "none", "--acks", "0")
    found = objects(run("consume", "r12", "--json"))
    assert [each["producer_id"] for each in found][:1] == [-1]


def test_lines_are_returned_after_each_read() -> None:
    class Slow(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return super().read1(4)

    slow = Slow(b"a\nb\r\nlong line\n\nend")
    assert list(lines_as_they_come(slow)) == [["a"], ["b"], ["long line", ""], ["end"]]
    assert list(lines_as_they_come(io.BytesIO(b""))) == []
