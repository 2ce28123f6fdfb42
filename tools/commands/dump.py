"""`odradek dump`: print log files as kafka-dump-log.sh does, with the coordinators' records decoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from tools.commands.common import HELP_NAMES, as_json, reporting, say, say_json
from tools.dumping import UnknownFile, line_of, rows_of

_SEGMENT = re.compile(r"\d{20}\.log")


@click.command(context_settings=HELP_NAMES)
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(exists=True, path_type=Path)
)
@click.option("-r", "--records", is_flag=True, help="Also print the records of each batch.")
@as_json
@reporting
def dump(paths: tuple[Path, ...], records: bool, as_json: bool) -> None:
    """Print the batches of segment files, and the entries of index, snapshot and checkpoint files.

    A PATH is a file, or a partition's directory for all its segments. The broker may be running. The exit code is 1 if a
    file is damaged.
    """
    damaged = False
    files = [file for path in paths for file in _files(path)]
    for file in files:
        if len(files) > 1 and not as_json:
            say(f"{file}:")
        try:
            for row in rows_of(file, records=records):
                damaged |= "damaged" in row or row.get("crc_valid") is False
                if as_json:
                    say_json({"file": str(file), **row} if len(files) > 1 else row)
                else:
                    say(line_of(row))
        except UnknownFile as error:
            raise click.ClickException(str(error)) from None
    if damaged:
        raise SystemExit(1)


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    found = sorted(each for each in path.iterdir() if _SEGMENT.fullmatch(each.name))
    if not found:
        raise click.ClickException(
            f"{path}: this directory contains no segment; give a partition's directory, such as orders-0"
        )
    yield from found
