"""MySQL, MariaDB and what speaks their protocol."""
