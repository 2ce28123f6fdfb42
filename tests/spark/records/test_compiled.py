"""The cache of compiled code if numba finds no writable directory, as in an image whose packages belong to another user."""

import os
import subprocess
import sys
from pathlib import Path

from odradek.spark.records.compiled import private_directory

PROGRAM = """
from odradek.spark.records.partitioner import _murmur2
import numba, numpy as np
_murmur2(np.frombuffer(b"key", np.uint8), 0, 3)
print(sum(_murmur2.stats.cache_hits.values()), numba.config.CACHE_DIR == "")
"""
# Numba can write neither next to the module nor to the user's cache directory, only to a directory that is configured.
NOWHERE = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": ""}


def worker(tmp_path: Path) -> str:
    environment = {**os.environ, **NOWHERE, "TMPDIR": str(tmp_path)}
    return subprocess.check_output([sys.executable, "-c", PROGRAM], text=True, env=environment)


def test_a_worker_loads_code_that_another_one_compiled(tmp_path):
    assert worker(tmp_path) == "0 True\n"
    assert worker(tmp_path) == "1 True\n"
    [directory] = tmp_path.iterdir()
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path):
    directory = private_directory(tmp_path)
    assert directory is not None
    assert directory == private_directory(tmp_path)
    directory.chmod(0o770)
    assert private_directory(tmp_path) is None
    directory.rmdir()
    directory.symlink_to(tmp_path)
    assert private_directory(tmp_path) is None
    assert private_directory(tmp_path / "missing") is None
