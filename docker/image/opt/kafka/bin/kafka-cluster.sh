#!/bin/sh
exec odradek kafka-tool kafka-cluster "$@"
