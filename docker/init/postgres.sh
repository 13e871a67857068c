#!/bin/bash
# The state store: a database and an account of its own, beside Airflow's metadata.
set -eu
psql --set=ON_ERROR_STOP=1 --set=password="$CDC_PASSWORD" --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<'SQL'
CREATE ROLE cdc LOGIN PASSWORD :'password';
CREATE DATABASE cdc_state OWNER cdc;
SQL
