"""The generated table of the modules in ``broker.apis``, with which a broker starts without importing these modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from broker.requests.index import text
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[3]


def test_the_generated_table_is_up_to_date() -> None:
    """The generated table is up to date.

    To update it, run ``python -m broker.requests.index > broker/requests/served.py``.
    """
    assert (ROOT / "broker" / "requests" / "served.py").read_text() == text()


def test_a_listed_module_is_imported_on_its_first_request_and_others_at_once() -> None:
    program = (
        "import sys\n"
        "from broker.requests import served\n"
        "del served.SERVED[22]\n"
        "from broker.requests.api import discover\n"
        "apis = discover()\n"
        "found = [name for name in sys.modules if name.startswith('broker.apis.')]\n"
        "print(len(apis), found, apis[0].handler.__module__, apis[0].versions)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=True
    )
    expected = "76 ['broker.apis.init_producer_id'] broker.apis.produce range(3, 14)\n"
    assert done.stdout == expected
