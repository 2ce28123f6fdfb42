"""The command `odradek spark demo`: run the pipeline in a directory, and return the exit code."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from odradek.demo import flights
from odradek.errors import OdradekError
from odradek.spark.environment import connector_jars
from odradek.spark.pipeline.run import Pipeline, Settings
from odradek.spark.pipeline.show import Show

CLEAN, WRONG, NOTHING_SHOWN = 0, 1, 2


def run(settings: Settings, keep: bool) -> int:
    """Run the pipeline; afterwards delete its directory, unless ``keep`` is set.

    Return 0 if the result is correct and the audit found no violation, 1 if not, 2 if the run failed.
    """
    try:
        # Check here first, so that missing Java or jars are reported once and not by every driver.
        connector_jars()
        in_file = len(flights.lines(flights.data_file()))
    except (OdradekError, flights.NoData) as failure:
        print(failure, file=sys.stderr)
        return NOTHING_SHOWN
    total = min(settings.flights or in_file, in_file)
    with Show(total) as show:
        show.say(f"seed {settings.seed} (again with: odradek spark demo --seed {settings.seed})")
        try:
            return CLEAN if Pipeline(settings, show, total).run().is_clean else WRONG
        except OdradekError as failure:
            show.fail(str(failure))
            return NOTHING_SHOWN
        finally:
            if keep:
                show.say(f"files: {settings.directory}")
            else:
                shutil.rmtree(settings.directory, ignore_errors=True)


def new_directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="odradek-spark-demo-"))
