"""Finds the compiled modules of the other packages (ADR 25), and lists the functions that the compiler optimises."""
