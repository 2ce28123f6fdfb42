#!/bin/sh
exec odradek kafka-tool kafka-broker-api-versions "$@"
