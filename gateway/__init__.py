"""skewgate: a reverse proxy in front of fleets that serve different API versions, as in a rolling upgrade.

It learns which versions each backend serves and tells clients one truth about the fleet. It negotiates a
version with each request in the client's own dialect, writes that version into the request as the chosen
backend spells it, and sends the request only to a backend that serves it. In order of importance: truth,
availability, clarity, speed.

Each package is a room: its first file says what belongs there and what does not. Imports point one way, from
`cli` down to `errors`. docs/code-map.md shows the rooms in that order, and every module with its first
sentence; both are made from the source.

    core, dialects                      think and translate: values in, values out
    dataplane, controlplane, telemetry  move bytes, learn, tell
    settings, tls, keys                 read the configuration
    workers, handover, engines          other processes: of this gateway, the next gateway, another proxy
    admin, cli, demo                    show, and take commands
    assembly, runtime                   put a running gateway together; the process around it

Nothing is imported here: `import gateway` must cost nothing and start nothing.
"""

__version__ = "0.1.0"
