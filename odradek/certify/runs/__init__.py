"""One run of the job: staged, waited for, and read."""
