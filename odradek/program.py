"""The entry point `odradek`: handles signals and standard descriptors before the slow imports of `odradek.cli`."""

from __future__ import annotations

from odradek._server.__main__ import hold_signals, open_standard_descriptors


def main() -> None:
    """Run the command line."""
    hold_signals()
    open_standard_descriptors()
    from odradek.cli import main as run

    run()
