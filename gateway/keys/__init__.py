"""DECLARES: how a key of the configuration file is declared, once.

A section of the file is a frozen dataclass, and each of its fields is a key: `KIND.key(default, meaning)`.
From that one declaration follow how the file is read, the JSON Schema, the reference page, what a service
inherits, and the value that core and data plane use. `kinds` has the shapes, `texts`, `addresses` and
`secrets` how single texts are read. This package knows no key, no YAML and no file.
"""
