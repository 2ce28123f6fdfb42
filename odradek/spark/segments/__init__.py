"""``format("odradek.segments")``: partition directories as tables (docs/spark/segments.md)."""
