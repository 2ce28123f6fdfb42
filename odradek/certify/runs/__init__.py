"""One run of the job: inject faults, wait for the end, collect the outputs."""
