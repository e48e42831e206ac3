#!/usr/bin/env bash
# The study's own authority, and the SuperLink's certificate under the names that hospitals use.
#
#     ./certificates.sh FOLDER NAME...        # ./certificates.sh secrets superlink.study.example
#
# FOLDER/ca.crt goes to every hospital. FOLDER/server.key and server.crt stay on the SuperLink's
# machine; FOLDER/ca.key belongs offline. 127.0.0.1 and localhost are always among the names, since
# the SuperLink's own processes talk to it there.
set -euo pipefail
folder=${1:?folder}
shift
umask 077
mkdir -p "$folder"
cd "$folder"

names="DNS:localhost,IP:127.0.0.1"
for name in "$@"; do
  if [[ $name =~ ^[0-9.]+$|: ]]; then names+=",IP:$name"; else names+=",DNS:$name"; fi
done

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -noenc -days 1095 \
  -subj "/CN=study authority" -keyout ca.key -out ca.crt \
  -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
  -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-384 -noenc \
  -subj "/CN=superlink" -keyout server.key -out server.csr 2>/dev/null
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 \
  -out server.crt -extfile - 2>/dev/null <<EXTENSIONS
subjectAltName=$names
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
EXTENSIONS
rm server.csr
openssl verify -CAfile ca.crt server.crt
