"""Drives the agreement between replicas, over a store that all of them see.

`replication` is the loop, `following` asks for the rules, `membership` is how this replica stands to a
service. `readings`, `reading` and `texts`: what stands in the store. `words`: what operators say. `saving`:
what goes to the state file. `reports`: what is told. `commits` bundles what is written; `clocks`: what time.

Decides nothing about versions: `core.agreement` does. No request waits for anything here.
"""
