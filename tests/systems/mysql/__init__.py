"""MySQL and MariaDB, on real servers."""
