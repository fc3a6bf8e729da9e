"""LEARNS what backends serve, and swaps the snapshot that everybody reads.

    prober, passive_observation   facts from probes and from requests
    discovery/, resolver          backends that come and go, addresses of names
    snapshot_holder, reload       the current snapshot, and a new configuration
    agreement, worker_agreement   one offer for all workers; replication/ and stores/ for all replicas
    state/                        state that survives a restart
    change_log, ejection_log      log lines for operators

Nothing here is on a request's path, and nothing here decides what is offered or which backend is chosen:
facts go to the snapshot holder, and `core` draws the conclusions.
"""
