"""The file, noun by noun: each module has one, as an operator knows it from the file.

A module says the keys with their types, defaults, reasons and examples; how what is written becomes the value
that the rest of the gateway uses; and what is checked of it beside the kinds of its keys: rules between keys,
the files that it names, and what needs the service's dialect. A class `Written...` has what the file says
where core has a class of the same name for what it means. `file` is the whole file, `service` one
service.

A check reports everything that it finds and leaves the file as it is. No module here may open a socket, read
the environment, or know a dialect by name. A section that core or TLS uses as it is read is declared there
(`core.fleet.connections`, `core.fleet.timeouts`, `tls.values`); how the tree is walked is the matter of
`yaml`.
"""
