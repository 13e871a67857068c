"""The steps of a pipeline, composed from the rooms below; the command line and Airflow call them.

    check -> plan -> snapshot -> hand_off -> stream -> finish_tables -> verify

Every step may be repeated: it looks at what the ledger and the state store say and does the rest.
"""
