#!/usr/bin/env bash
# In a hospital: the SuperNode. Nothing listens but on 127.0.0.1; it calls out to the SuperLink.
#
#     ./supernode.sh SUPERLINK:PORT CA_CERTIFICATE KEY BUNDLE_DIGEST DATA SPEC JOURNAL [LOCAL_PORT]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/environment.sh"
exec python "$here/supernode.py" --bundle "${4:?digest of the bundle that you have read}" \
  --superlink "${1:?address:port of the SuperLink}" \
  --root-certificates "${2:?path of ca.crt}" \
  --auth-supernode-private-key "${3:?private key of this hospital}" \
  --host 127.0.0.1 --port "${8:-9094}" \
  --node-config "data=\"$(realpath "${5:?records}")\" spec=\"$(realpath "${6:?specification}")\" journal=\"$(realpath -m "${7:?journal}")\""
