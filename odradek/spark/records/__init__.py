"""Record batches and Arrow columns, each from the other, compiled; pure, no files, no sockets."""
