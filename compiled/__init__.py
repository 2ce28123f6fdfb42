"""Compiled modules of the packages beside this one (ADR 25): which of them run, and what of them is optimised."""
