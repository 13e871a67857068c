"""Positions in the log of MySQL and MariaDB: their algebra, their stored form, their columns."""
