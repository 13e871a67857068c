#!/bin/bash
# MariaDB names the second privilege differently, and has one more for what it replicates itself.
set -eu
mariadb --user=root --password="$MARIADB_ROOT_PASSWORD" <<SQL
CREATE USER 'cdc'@'%' IDENTIFIED BY '${CDC_PASSWORD}';
GRANT REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR ON *.* TO 'cdc'@'%';
GRANT SELECT ON tpch.* TO 'cdc'@'%';
GRANT SELECT ON extras.* TO 'cdc'@'%';
CREATE DATABASE tpch;
SQL
