"""The stage ``postgres``."""
