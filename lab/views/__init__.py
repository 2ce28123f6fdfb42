"""What a viewer sees of a broker: bounded summaries, read in slices while they are asked for, and kept nowhere."""
