#!/bin/bash
# MariaDB names the second privilege differently.
set -eu
mariadb --user=root --password="$MARIADB_ROOT_PASSWORD" <<SQL
CREATE USER 'cdc'@'%' IDENTIFIED BY '${CDC_PASSWORD}';
GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO 'cdc'@'%';
GRANT SELECT ON *.* TO 'cdc'@'%';
CREATE DATABASE tpch;
SQL
