#!/bin/bash
# The account a sink needs: it makes the databases and tables it fills, and keeps the ledger.
set -eu
mysql --user=root --password="$MYSQL_ROOT_PASSWORD" <<SQL
CREATE USER 'cdc'@'%' IDENTIFIED BY '${CDC_PASSWORD}';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, REFERENCES, TRIGGER, DROP ON tpch.* TO 'cdc'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, REFERENCES, TRIGGER, DROP ON extras.* TO 'cdc'@'%';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON airflow_cdc.* TO 'cdc'@'%';
SQL
