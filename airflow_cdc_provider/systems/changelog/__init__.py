"""A folder of files that holds every change, in Debezium's envelope."""
