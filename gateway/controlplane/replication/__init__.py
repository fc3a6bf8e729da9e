"""Agreement between replicas, over a store that all of them see.

`replication` is the loop. `membership` is the state of this replica in one service. `reading`: the contents
of the store; `entries`: their format. `plans`: the next write. `saving`: what goes to the state file.
`reports`: status and metrics. `clocks`: time.

Decides nothing about versions: `core.agreement` does. Knows no kind of store (`stores`) and no worker. No
request waits for anything here.
"""
