"""Drives the agreement between replicas, over a store that all of them see.

`replication` is the loop. `membership` is how this replica stands to a service, and writes that alone; all
other files ask it. `reading`: what stands in the store, and `entries` how it is written there. `plans`: what
is written next. `saving`: what goes to the state file. `reports`: what is told. `clocks`: what time.

Decides nothing about versions: `core.agreement` does. Knows no kind of store (`stores`) and no worker. No
request waits for anything here.
"""
