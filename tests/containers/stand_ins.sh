#!/usr/bin/env bash
# Images that stand for published ones where no registry of images can be reached: Debian 12 from its packages, with
# this host's package sources and certificates; Kafka from the jars of the tests' own broker; PostgreSQL from Debian.
#
#     tests/containers/stand_ins.sh PODMAN JARS      JARS: a folder with the broker's jars
set -euo pipefail
podman=$1 jars=$2 here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! "$podman" image exists docker.io/library/debian:bookworm-slim; then
    root=$work/root
    debootstrap --variant=minbase --include=ca-certificates bookworm "$root" >/dev/null
    rm -f "$root/etc/apt/sources.list"
    cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/"
    cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
    cp -r /usr/share/keyrings/debian-* "$root/usr/share/keyrings/"
    install -d "$root/usr/local/share/ca-certificates"
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
    chroot "$root" update-ca-certificates >/dev/null 2>&1
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"
    tar -C "$root" -c . | "$podman" import - docker.io/library/debian:bookworm-slim >/dev/null
fi
cp -r "$here/kafka" "$here/postgres" "$work/"
mkdir "$work/kafka/jars"
cp "$jars"/*.jar "$work/kafka/jars/"
"$podman" build --tag localhost/clonos-kafka "$work/kafka"
"$podman" build --tag localhost/clonos-postgres "$work/postgres"
