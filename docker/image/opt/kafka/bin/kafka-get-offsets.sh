#!/bin/sh
exec odradek kafka-tool kafka-get-offsets "$@"
