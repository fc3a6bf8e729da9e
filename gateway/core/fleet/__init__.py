"""Configured services and backends, the facts about them, their offers, and the snapshot of all of it.

Sections of the file that core uses as they are read are declared here, and enforced by `dataplane` and
`controlplane`. Facts and commands enter by `Fleet.observe` and `Fleet.apply` only, and time is a parameter.
Nothing here decides about a request (`core.decision`), collects a fact or swaps a snapshot (`controlplane`).
"""
