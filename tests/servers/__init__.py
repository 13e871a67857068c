"""Throwaway MySQL and MariaDB servers, a cutting proxy and a Java, usable without pytest.

`throwaway` is the way in: `with MySqlServer() as server: server.execute("SELECT 1")`.
"""
