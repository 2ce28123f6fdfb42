#!/bin/sh
# Odradek in an environment of its own, and its command on PATH. The options of the feature come as variables.
set -eu

python3 -m venv /opt/odradek
/opt/odradek/bin/pip install --no-cache-dir "${PACKAGE:-odradek}${VERSION:+==$VERSION}"
ln -sf /opt/odradek/bin/odradek /usr/local/bin/odradek
