"""Pipeline files: the smallest one, and one that says everything."""

from __future__ import annotations

FULL = """\
pipeline: shop_to_dr
source:
  conn_id: shop_mysql            # or dsn_env: SHOP_DSN outside Airflow
  tables: ["shop.orders", "shop.customers", "inventory.*"]
  exclude: ["inventory.tmp_*"]
  server_id: 5400-5499
sink:
  type: mysql
  conn_id: dr_mysql
  route: {"shop.*": "dr_shop.*"}
state:
  conn_id: cdc_state
snapshot:
  split_rows: 50000
  max_connections: 8
  backfill: true
  tables: {"shop.orders": {key: [id], where: null}}
stream:
  start: after_snapshot
  stop: never
  mode: continuous
  apply: transactions
  max_batch: {changes: 100000, seconds: 1}
topology: null
spark:
  conn_id: spark_default
  conf: {}
"""
SMALL = """\
pipeline: shop
source:
  dsn_env: SHOP_DSN
  tables: ["shop.*"]
sink:
  dsn_env: DR_DSN
"""
