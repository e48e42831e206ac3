#!/usr/bin/env bash
# On the coordinator's machine: the SuperLink, encrypted, for registered hospitals only.
#
#     ./superlink.sh SECRETS [HOST] [PORT]
#
# SECRETS is the folder that certificates.sh made. HOST is the address to listen on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
secrets=$(cd "${1:?folder with server.crt, server.key and ca.crt}" && pwd)
source "$here/environment.sh"
# The database keeps the registered keys over a restart; without it they live in memory.
exec flower-superlink \
  --host "${2:-127.0.0.1}" --port "${3:-8000}" \
  --ssl-ca-certfile "$secrets/ca.crt" \
  --ssl-certfile "$secrets/server.crt" \
  --ssl-keyfile "$secrets/server.key" \
  --enable-supernode-auth \
  --disable-runtime-dependency-installation \
  --database "$FLWR_HOME/superlink.db"
