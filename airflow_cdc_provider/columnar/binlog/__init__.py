"""The binlog's row events become Arrow columns here, many events in one vector step."""
