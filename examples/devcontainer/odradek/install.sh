#!/bin/sh
# Install Odradek into its own virtual environment, and link the command into PATH. The feature's options are environment variables.
set -eu

python3 -m venv /opt/odradek
/opt/odradek/bin/pip install --no-cache-dir "${PACKAGE:-odradek}${VERSION:+==$VERSION}"
ln -sf /opt/odradek/bin/odradek /usr/local/bin/odradek
