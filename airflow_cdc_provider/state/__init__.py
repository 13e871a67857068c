"""What is remembered of a pipeline, in any SQLAlchemy database. Drivers and Airflow only."""
