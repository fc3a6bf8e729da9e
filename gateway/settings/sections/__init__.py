"""The sections of the configuration file: one module for each noun, as an operator knows it.

A module declares keys with their types, defaults, reasons and examples, makes the value that the rest of the
gateway uses, and checks what kinds of keys cannot: rules between keys, files, and the demands of the dialect.
A class `Written...` has what the file says, if core has a class of that name for what it means.

A check reports everything that it finds and leaves the file as it is. No module here may open a socket, read
the environment, or know a dialect by name. `yaml` walks the tree.
"""
