# PostgreSQL's image sources this once, when its volume is empty: two databases whose owners cannot read each other's,
# and a role that reads coevo's.
# shellcheck shell=bash
psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname=postgres \
  --set=coevo="$COEVO_DATABASE_PASSWORD" --set=prefect="$PREFECT_DATABASE_PASSWORD" \
  --set=grafana="$GRAFANA_DATABASE_PASSWORD" <<'SQL'
CREATE ROLE coevo LOGIN PASSWORD :'coevo';
CREATE ROLE prefect LOGIN PASSWORD :'prefect';
CREATE DATABASE coevo OWNER coevo;
CREATE DATABASE prefect OWNER prefect;
REVOKE ALL ON DATABASE coevo, prefect FROM PUBLIC;
-- Grafana asks the tables that coevo will make, and changes nothing.
CREATE ROLE grafana_reader LOGIN PASSWORD :'grafana' CONNECTION LIMIT 20;
ALTER ROLE grafana_reader SET default_transaction_read_only = on;
ALTER ROLE grafana_reader SET statement_timeout = '30s';
GRANT CONNECT ON DATABASE coevo TO grafana_reader;
\connect coevo
ALTER DEFAULT PRIVILEGES FOR ROLE coevo IN SCHEMA public GRANT SELECT ON TABLES TO grafana_reader;
SQL
