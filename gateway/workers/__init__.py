"""Several processes for the data plane: one main process that learns and decides, N workers that serve.

    main process    Prober, Reloader, Discovery, admin, state  ->  SnapshotHolder  ->  Publisher  ->  Channel
    worker          Channel  ->  SnapshotHolder  ->  dataplane.Worker  ->  facts, reports  ->  Channel

The main process holds the listening sockets. With one worker none of this runs: `OwnWorker` is the data plane
in the main process itself. The rest of the gateway sees either as a `DataPlane`.

`supervisor` starts, watches and replaces workers, `worker_handle` is one of them as the main process has it,
and `worker_main` runs inside it.

What belongs here: the life of worker processes, their messages, and the parts that one consists of. What does
not: connections and requests (`dataplane`), knowledge of backends (`controlplane`), and other gateways
(`handover`).
"""
