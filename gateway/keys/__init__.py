"""DECLARES: each key of the configuration file, once.

A section of the file is a frozen dataclass, and each of its fields is a key: `KIND.key(default, meaning)`.
Derived from that one declaration are the reader of the file, the JSON Schema, the reference page, inheritance
by services, and the value that core and data plane use. `kinds` has the shapes; `texts`, `addresses` and
`secrets` read single texts. This package contains no key, no YAML and no file.
"""
