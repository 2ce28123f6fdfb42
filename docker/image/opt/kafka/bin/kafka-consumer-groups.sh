#!/bin/sh
exec odradek kafka-tool kafka-consumer-groups "$@"
