"""Compiled modules of the other packages (ADR 25): finding them, and the list of functions to optimise."""
