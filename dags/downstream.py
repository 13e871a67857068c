"""A DAG that runs when rows of a table have changed at the sink, whoever brought them."""

from airflow.sdk import DAG, Asset, get_current_context, task

ORDERS = Asset("cdc://demo_sink/dr_shop/orders")

with DAG("orders_changed", schedule=[ORDERS], catchup=False, tags=["cdc"]):

    @task
    def say_what_changed() -> list[str]:
        """Say how much changed, and up to where in the source's log."""
        events = get_current_context()["triggering_asset_events"][ORDERS]
        return [
            f"{event.extra['changes']} changes up to {event.extra['position']}" for event in events
        ]

    say_what_changed()
