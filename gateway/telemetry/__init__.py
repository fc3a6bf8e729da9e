"""TELLS what happened: `metrics` counts, `access_log` writes one line per request. Both are given one
`request_record.RequestRecord` per request. `process_log` writes everything else that a running gateway says.

Nothing here decides anything, and nothing here may make a request wait or fail. Label values come from the
configuration or from closed sets, never from a client's text. What a client wrote is escaped before it is
shown.
"""
