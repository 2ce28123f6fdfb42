#!/bin/sh
# Generates new certificates for the TLS tests: an authority, a server and a client signed by it, and an untrusted authority.
set -e
cd "$(dirname "$0")"
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj "/CN=$2" \
        -keyout "$1.key" -out "$1.pem"
}
signed() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
    printf 'subjectAltName=%s\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n' "$2" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA authority.pem -CAkey authority.key -CAcreateserial -days 36500 -extfile "$1.ext" -out "$1.crt"
    cat "$1.key" "$1.crt" > "$1.pem"
    rm "$1.csr" "$1.ext" "$1.crt" "$1.key"
}
authority authority "Odradek tests"
authority stranger "Untrusted authority"
signed server "IP:127.0.0.1"
signed elsewhere "DNS:elsewhere.example"
signed client "DNS:client.example"
rm -f *.key *.srl
