"""Tables in a lake: rows as columns of Parquet files, in tables of Iceberg or Delta."""
