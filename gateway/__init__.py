"""skewgate: a reverse proxy in front of fleets that serve different API versions, as in a rolling upgrade.

It learns which versions each backend serves and tells clients one truth about the fleet. It negotiates a
version with each request in the client's own dialect, writes that version into the request as the chosen
backend spells it, and sends the request only to a backend that serves it. In order of importance: truth,
availability, clarity, speed.

The packages and their order. Imports point one way, from the bottom of this list to its top:

    errors          every exception that is raised on purpose
    keys/           DECLARES: how a key of the configuration is declared, once
    runtime/        the process around the gateway: event loop, signals, service manager, CPUs, which build
    core/           THINKS: values in, values out; no I/O, no clock, no randomness
      versions/       what a version is: schemes, ranges, sets
      http/           message heads and links as values
      dialect         the contract that every dialect implements
      fleet/          what is known and offered: services, backends, offers, the snapshot
      decision/       what happens to a request: routing, negotiation, selection, response, explanation
    dialects/       TRANSLATES: one folder per family, pure: openstack/  chef/  custom/
    tls/            certificates and contexts of TLS
    settings/       the configuration file, every problem at once with its position: yaml/  model/  checks/
    telemetry/      TELLS: request record, series/ of /metrics, the report of a worker, status, access log
    dataplane/      MOVES BYTES: client and backend connections, the hot path; http1/ is the protocol
    controlplane/   LEARNS: probes, the snapshot holder, reload; state/ survives restarts
    engines/        another proxy that forwards by what the gateway has decided: haproxy/
    handover/       from one gateway process to the next, without losing a request
    workers/        the data plane in several processes: what they are told, what they report
    admin/          SHOWS, takes commands: /status, /metrics, /explain …
    assembly        the composition root: one running gateway from all these parts
    demo/           the gateway in front of a fleet of its own, in a rolling upgrade
    cli/            the command `skewgate`: one file per verb

Nothing is imported here: `import gateway` must cost nothing and start nothing.
"""

__version__ = "0.1.0"
