#!/bin/sh
exec odradek kafka-tool kafka-console-producer "$@"
