"""Record batches and Arrow columns, each from the other, compiled: no sockets, no loop."""
