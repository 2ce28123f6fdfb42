"""The entry point `odradek`: does what must precede the slow imports of the command line (`odradek.cli`)."""

from __future__ import annotations

from odradek._server.__main__ import hold_signals, open_standard_descriptors


def main() -> None:
    """Run a command."""
    hold_signals()
    open_standard_descriptors()
    from odradek.cli import main as run

    run()
