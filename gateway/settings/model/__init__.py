"""The shape of the file: every key with its type, its default, the reason for it, a description, an example.

`document` is the section of the whole file and `service` that of one service. Both import the sections
whose values core and TLS use as they are read: `core.fleet.queue`, `core.fleet.timeouts`, `tls.values` and
others. A dialect declares its options itself. `keys` says how a key is declared; `schema` and `reference`
make the JSON Schema and the page from the declarations. A section must not compare keys, know a dialect by
name, or read a file; what concerns more than one key, or needs the dialect, is in `checks`.
"""
