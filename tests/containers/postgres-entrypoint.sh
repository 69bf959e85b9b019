#!/usr/bin/env bash
# The part of the official image's entry point that docker-compose.yml uses: on an empty volume it makes a database from
# POSTGRES_* and /docker-entrypoint-initdb.d, while PostgreSQL listens at its socket only.
set -Eeuo pipefail
export PGDATA=${PGDATA:-/var/lib/postgresql/data}
if [ "${1:-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  : "${POSTGRES_PASSWORD:?no password of the superuser is given}"
  export POSTGRES_USER=${POSTGRES_USER:-postgres}
  export POSTGRES_DB=${POSTGRES_DB:-$POSTGRES_USER}
  initdb --encoding=UTF8 --locale=C.UTF-8 --username="$POSTGRES_USER" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD")
  printf '\nhost all all all scram-sha-256\n' >> "$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -w -o "-c listen_addresses=''" start
  [ "$POSTGRES_DB" = postgres ] || createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
  for file in /docker-entrypoint-initdb.d/*.sh; do
    # shellcheck source=/dev/null
    . "$file"
  done
  pg_ctl -D "$PGDATA" -m fast -w stop
fi
exec "$@" -c 'listen_addresses=*'
