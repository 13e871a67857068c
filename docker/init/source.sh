#!/bin/bash
# The account a source needs: no lock, no RELOAD.
set -eu
mysql --user=root --password="$MYSQL_ROOT_PASSWORD" <<SQL
CREATE USER 'cdc'@'%' IDENTIFIED BY '${CDC_PASSWORD}';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%';
GRANT SELECT ON tpch.* TO 'cdc'@'%';
GRANT SELECT ON extras.* TO 'cdc'@'%';
SQL
