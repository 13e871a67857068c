"""Copy MySQL and MariaDB tables elsewhere and keep them in step, with Airflow and Spark."""

__version__ = "0.1.0"
