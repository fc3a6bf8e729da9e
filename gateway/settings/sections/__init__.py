"""The sections of the file: one module for each noun, as an operator knows it from the file.

A module declares the keys with their types, defaults, reasons and examples. It turns what is written into the
value that the rest of the gateway uses. It checks what the kinds of the keys cannot: rules between keys,
files that the configuration names, and what the service's dialect demands. A class `Written...` has what the
file says, if core has a class of that name for what it means. `file` is the whole file, `service` one
service.

A check reports everything that it finds and leaves the file as it is. No module here may open a socket, read
the environment, or know a dialect by name. Sections that core or TLS use as they are read are declared there
(`core.fleet.connections`, `core.fleet.timeouts`, `tls.values`). `yaml` walks the tree.
"""
