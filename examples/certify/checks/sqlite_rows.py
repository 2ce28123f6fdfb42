"""Check that a database contains each row once: sqlite_rows.py DATA INPUT."""

import json
import sqlite3
import sys
from collections import Counter
from pathlib import Path

data, given = Path(sys.argv[1]), Path(sys.argv[2])
wanted = Counter(
    (each["key"], each["value"].upper()) for each in map(json.loads, given.read_text().splitlines())
)
found = Counter(sqlite3.connect(data / "sink.db").execute("select key, value from rows"))
print(f"missing {list(wanted - found)[:5]}, too many {list(found - wanted)[:5]}")
sys.exit(found != wanted)
