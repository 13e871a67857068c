"""Airflow's nouns, thin: they compose what the other rooms do."""
