"""``format("odradek.exactly_once")``: a micro-batch is one decision."""
