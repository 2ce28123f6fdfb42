#!/bin/sh
# The commands of Kafka's StorageTool that start scripts call. The broker formats its data directory at its first start.
set -eu

case "${1-}" in
    random-uuid)
        # 16 bytes in URL-safe base64. Like Kafka's Uuid.randomUuid, the id must not begin with a dash.
        uuid=-
        while [ "${uuid#-}" != "$uuid" ]; do
            uuid=$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=')
        done
        echo "$uuid"
        ;;
    format)
        echo "Nothing to format: the broker prepares its data directory at its first start."
        ;;
    *)
        echo "kafka-storage: only random-uuid and format are supported, not '${1-}'" >&2
        exit 1
        ;;
esac
