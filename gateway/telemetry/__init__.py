"""REPORTS what happened: `metrics` counts, `access_log` writes a line per request, `tracing` records spans,
all from the one `request_record.RequestRecord` of a request. `process_log` writes the log of the process, and
`status` is the gateway at one moment, as values.

Belongs here: records, counts, series, logs, traces and reports, and how they are written. Label values come
from the configuration or from closed sets, never from a client's text, and text of a client is escaped before
it is shown.

Does not belong here: decisions, anything that makes a request wait or fail, measuring, the admin listener
(`admin`), and the pages and terminals that show all this.
"""
