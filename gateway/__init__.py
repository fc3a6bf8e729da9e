"""skewgate: a reverse proxy in front of fleets that serve different API versions, as in a rolling upgrade.

It learns which versions each backend serves, tells clients one truth about the fleet, settles on a version
with each request in the client's own dialect, writes that version into the request in the spelling that the
chosen backend understands, and sends it only to a backend that serves it. Ranked: truth > availability >
clarity > speed.

The map of the house. Imports point one way, from the bottom of this list to its top:

    errors          every exception raised on purpose
    core/           THINKS: values in, values out; no I/O, no clock, no chance
    dialects/       TRANSLATES: one file, one dialect, pure
    settings/       the configuration file: every problem at once, with its position
    telemetry/      metrics and access log: what happened, told to people
    dataplane/      MOVES BYTES: connections, the hot path
    controlplane/   LEARNS: probes, the one mutable cell, reloading
    admin/          the admin listener: /status, /metrics, /explain …
    cli/            the command `skewgate`; puts all of it together (`cli.gateway`)

Nothing is imported here: `import gateway` must cost nothing and start nothing.
"""

__version__ = "0.1.0"
