"""The source: MySQL and MariaDB, asked and read without locks."""
