"""Row events: table maps, rows and cells."""
