"""TELLS what happened: `metrics` counts, `access_log` writes a line a request; both are fed one
`outcome.Outcome`.

Nothing here decides anything, and nothing here may make a request wait or fail. Label values come from the
configuration or from closed sets, never from a client's text; what a client wrote is escaped before it is
shown.
"""
