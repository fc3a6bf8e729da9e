"""TELLS what happened: `metrics` counts, `access_log` writes a line per request, `tracing` notes spans; each
is given the one `request_record.RequestRecord` of a request. `process_log` writes everything else that a
running gateway says, and `status` is the gateway at one moment, as values.

Belongs here: records, counts, series, logs, traces and reports, and how they are written. Label values come
from the configuration or from closed sets, never from a client's text. What a client wrote is escaped before
it is shown.

Does not belong here: decisions, and anything that makes a request wait or fail; whoever measures or learns
what is told; who asks for it over HTTP (`admin`), and the pages and terminals that show it.
"""
