"""One module per API. The file name is the API's name in Kafka, in snake case."""
