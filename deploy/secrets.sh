#!/bin/sh
# Makes the secrets that docker-compose.yml names, in deploy/secrets; those that are there stay as they are.
set -eu
folder=$(dirname "$0")/secrets
# Whoever may not enter the folder cannot read them. The files themselves have to be readable for all: the users in the
# containers are none of this machine, and Compose mounts the files as they are.
mkdir -p "$folder"
chmod 700 "$folder"
for name in postgres_password host_key; do
  [ -e "$folder/$name" ] && continue
  head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/$name"
  chmod 444 "$folder/$name"
done
