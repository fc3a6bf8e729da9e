"""The demonstration: a gateway in front of old and new API servers, several kinds of clients, and an upgrade.

The gateway is the one of `skewgate run`. Its configuration is `config.yaml` beside this file, a file of the
same kind. Servers and clients are real ones on loopback. What belongs here: its servers, clients, steps
and views. What does not: how a gateway behaves, and the command line (`gateway.cli.demo` starts it).
"""
