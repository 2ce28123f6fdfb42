"""`odradek craft`: write a partition directory whose log has rare contents."""

from __future__ import annotations

from pathlib import Path

import click

from tools.client.producing import now_ms
from tools.commands.common import HELP_NAMES, as_json, partition_name, reporting, say, say_json, say_table
from tools.crafting import Crafted, batches, sound, words, write_partition


@click.command(context_settings=HELP_NAMES)
@click.argument("partition", metavar="TOPIC/PARTITION")
@click.argument("spec", metavar="WORDS")
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory in which the partition's directory is created.",
)
@as_json
@reporting
def craft(partition: str, spec: str, out: Path, as_json: bool) -> None:
    """Write a partition's directory with a log described by words, to test programs that read segment files.

    Each word has a number. plain, commit, abort and open write records, outside transactions or in one with that outcome;
    gap skips offsets, and empty writes a batch without records, as compaction does; control writes control records of
    an unknown type; old-format writes messages of format 1; bad-crc a batch with a wrong CRC.

    \b
    odradek craft orders/0 'commit 2, abort 1, gap 3, open 1' --out crafted
    odradek import --data-dir look crafted/orders-0
    """
    topic, index = partition_name(partition)
    now = now_ms()
    crafted = list(batches(words(spec), now))
    directory = out / f"{topic}-{index}"
    write_partition(directory, crafted, now)
    how_to = _how_to_serve(directory, crafted, now)
    if as_json:
        rows = [
            {
                "word": each.word.name,
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "bytes": len(each.data),
            }
            for each in crafted
        ]
        say_json({"directory": str(directory), "words": rows})
        return
    say_table(
        ("OFFSETS", "WORD", "BYTES"),
        [(f"{each.first_offset}-{each.last_offset}", each.word.name, len(each.data)) for each in crafted],
    )
    say(how_to)


def _how_to_serve(directory: Path, crafted: list[Crafted], now_ms: int) -> str:
    """The commands with which a user makes a broker serve the crafted log.

    As an import checks CRCs, a correct log is imported, then replaced by the crafted one.
    """
    names, serve = {each.word.name for each in crafted}, "odradek serve --data-dir look"
    if "old-format" in names:
        return "Odradek does not serve messages of format 1: Kafka does, and odradek dump shows them"
    if "bad-crc" not in names:
        return f"to serve it: odradek import --data-dir look {directory}; {serve}"
    right = directory.parent / "sound" / directory.name
    write_partition(right, [sound(each) for each in crafted], now_ms)
    instead = f"cp {directory}/*.log look/{directory.name}/"
    return f"to serve it: odradek import --data-dir look {right}; {instead}; {serve}"
