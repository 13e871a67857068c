"""Handing out splits no faster than the servers can bear."""
