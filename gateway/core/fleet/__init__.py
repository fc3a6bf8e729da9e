"""What is configured, known and offered: services, backends, the facts about them, offers and the snapshot.

Sections of the file that core uses as they are read are declared here (`limits`, `timeouts`, `match`,
`probe`, `failures`, `connections`); they are enforced in `dataplane` and `controlplane`. Facts and commands
enter by `Fleet.observe` and `Fleet.apply` only, and time is a parameter. Nothing here decides about a request
(`core.decision`), collects a fact or swaps a snapshot (`controlplane`).
"""
