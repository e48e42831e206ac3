#!/usr/bin/env bash
# The whole study on this machine, over 127.0.0.1 only: coordinator and three pretended hospitals,
# with certificates, registered keys and a pinned bundle. Takes one to two minutes.
#
#     ./loopback.sh FOLDER [PORT]
#
# FOLDER is new; each party gets a folder of its own in it. PORT to PORT + 3 have to be free.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?a new folder}
port=${2:-18000}
umask 077
mkdir "$folder"
folder=$(cd "$folder" && pwd)
mkdir "$folder/logs"
started=()

end_all() { # The hospitals first: they say goodbye to the SuperLink.
  kill "${started[@]:1}" 2>/dev/null || true
  wait "${started[@]:1}" || true
  kill "${started[@]:0:1}" 2>/dev/null || true
  wait
}
trap end_all EXIT

wait_for() { # FILE TEXT
  for _ in $(seq 240); do
    if grep -q "$2" "$1" 2>/dev/null; then return; fi
    sleep 0.5
  done
  echo "waited in vain for '$2' in $1:" >&2
  tail -n 20 "$1" >&2
  exit 1
}

# Agreed on by all: the specification and the program.
python "$here/prepare_data.py" "$folder/data"
python "$here/make_spec.py" "$folder/spec.json"
export FLWR_HOME="$folder/coordinator"
source "$here/environment.sh"
cp -r "$here" "$folder/app"
(cd "$folder/app" && rm -f ./*.fab && flwr build >/dev/null)
bundle=$(sha256sum "$folder"/app/*.fab | cut -d ' ' -f 1)
rm "$folder"/app/*.fab
echo "bundle: $bundle"

# The coordinator.
"$here/certificates.sh" "$folder/secrets" superlink.study.example
"$here/superlink.sh" "$folder/secrets" 127.0.0.1 "$port" >"$folder/logs/superlink.log" 2>&1 &
started+=($!)
cat >"$FLWR_HOME/config.toml" <<CONNECTION
[superlink]
default = "study"
[superlink.study]
address = "127.0.0.1:$port"
root-certificates = "$folder/secrets/ca.crt"
CONNECTION
wait_for "$folder/logs/superlink.log" "Uvicorn running"

# Each hospital makes its key; the coordinator registers the public half.
number=0
for hospital in hospital_a hospital_b hospital_c; do
  number=$((number + 1))
  mkdir "$folder/$hospital"
  ssh-keygen -q -t ecdsa -b 384 -N "" -C "$hospital" -f "$folder/$hospital/node_key"
  flwr supernode register "$folder/$hospital/node_key.pub" study >/dev/null
  FLWR_HOME="$folder/$hospital/flwr" "$here/supernode.sh" \
    "127.0.0.1:$port" "$folder/secrets/ca.crt" "$folder/$hospital/node_key" "$bundle" \
    "$folder/data/$hospital.csv" "$folder/spec.json" "$folder/$hospital/journal" \
    $((port + number)) >"$folder/logs/$hospital.log" 2>&1 &
  started+=($!)
done
for hospital in hospital_a hospital_b hospital_c; do
  wait_for "$folder/logs/$hospital.log" "SuperNode ID:"
done

flwr run "$folder/app" study --stream \
  --run-config "spec=\"$folder/spec.json\" results=\"$folder/results\""
flwr list study
dpsvm-fast verify "$folder/results/certificate.json"
python "$here/evaluate.py" "$folder/results/model.npz" "$folder/data/held_out.csv"
