"""Several processes for the data plane: one parent that learns and decides, N workers that serve.

    parent    Prober, Reloader, Discovery, admin, state  ->  SnapshotHolder  ->  Publisher  ->  Channel
    worker    Channel  ->  SnapshotHolder  ->  dataplane.Worker  ->  facts, reports  ->  Channel

The parent holds the listening sockets. What both say to each other is in `messages`. With one worker none of
this runs: the data plane is in the process of the parent.
"""
