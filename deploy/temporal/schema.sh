#!/bin/sh
# Makes Temporal's databases and brings their schemas to this version; does nothing where they are. Runs in the image
# temporalio/admin-tools, which has the tool and the schemas.
set -eu
SQL_PASSWORD=$(cat /run/secrets/postgres_password)
export SQL_PASSWORD

insist() {
  tries=15
  until "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
      "$@"
      return 1
    fi
    sleep 2
  done
}

for database in temporal temporal_visibility; do
  schema=${database#temporal_}
  set -- temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" --port 5432 --user "$POSTGRES_USER" --db "$database"
  # The database may still be starting.
  insist "$@" create
  "$@" setup-schema --version 0.0
  "$@" update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/$schema/versioned"
done
