"""The state store: SQLAlchemy, on drivers and in Airflow, never on executors."""
