"""``python -m broker.requests.index > broker/requests/served.py``: generates the table of the APIs that the modules serve.

With the table, starting a broker does not import the modules of ``broker.apis`` (`broker.requests.api.discover`).
"""

from __future__ import annotations

import sys

from broker.requests.api import Api, registered

HEAD = '''\
"""Every API by its key: its module in ``broker.apis``, served and announced versions, whether allowed before authentication.

Written by ``python -m broker.requests.index``: do not edit.
"""

from typing import Final

SERVED: Final[dict[int, tuple[str, range, range, bool]]] = {'''


def text() -> str:
    """Source text of the module `broker.requests.served`."""
    return "\n".join([HEAD, *map(_row, sorted(registered().values(), key=lambda each: each.key)), "}", ""])


def _row(api: Api) -> str:
    facts = (
        f'"{api.name}", {_range(api.versions)}, {_range(api.announced)}, {api.allow_before_authentication}'
    )
    return f"    {api.key}: ({facts}),"


def _range(versions: range) -> str:
    return repr(versions).replace("(0, ", "(")


if __name__ == "__main__":
    sys.stdout.write(text())
