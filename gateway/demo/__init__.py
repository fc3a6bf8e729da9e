"""The demonstration: a gateway in front of old and new API servers, several kinds of clients, and an upgrade.

The gateway is that of `skewgate run`, configured by `config.yaml` beside this file. Servers and clients are
real ones on loopback. This package owns its servers, clients, steps and views. It must not change how the
gateway behaves; the command line is in `gateway.cli.demo`.
"""
