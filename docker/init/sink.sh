#!/bin/bash
# The account a sink needs: it makes the databases and tables it fills, and keeps the ledger.
set -eu
mysql --user=root --password="$MYSQL_ROOT_PASSWORD" <<SQL
CREATE DATABASE cdc_state;
CREATE USER 'cdc'@'%' IDENTIFIED BY '${CDC_PASSWORD}';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, REFERENCES, TRIGGER, DROP ON *.* TO 'cdc'@'%';
SQL
