"""LEARNS: `prober` asks backends for their versions, `passive_observation` takes in what requests showed,
`snapshot_holder` holds the current snapshot, `reload` applies a new configuration, `state/` keeps what
survives a restart, `change_log` writes the log lines for operators.

Nothing here is on a request's path, and nothing here decides what is offered or which backend is chosen:
facts go to the snapshot holder, and `core` draws the conclusions.
"""
