"""Status: what is remembered of a pipeline, from the state store alone."""

from __future__ import annotations

import time
from functools import partial

from airflow_cdc_provider.cli.commands.opening import Options, looked_at, status_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.pipeline.run import open_to_look
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.remarks import remark_lines
from airflow_cdc_provider.views.reports import status_lines

_WATCH_EVERY_S = 2.0


def status(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `status`: show a pipeline's status, again and again with --watch."""
    with looked_at(options, lookup, screen) as run:
        while options.watch:
            # opened anew, because a store that was not there may be by now
            with open_to_look(run.loaded, lookup.dsn_of, in_airflow=lookup.in_airflow) as now:
                screen.progress(partial(status_of, now))
            time.sleep(_WATCH_EVERY_S)
        found = status_of(run)
    where, *more = status_lines(found)
    screen.result(found.to_json(), [where, *remark_lines(found), *more])
    return True
