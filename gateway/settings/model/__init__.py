"""The shape of the file: every key with its type, its default, the reason for it, a description, an example.

`document` and `service` hold the keys, `options` the keys that a dialect adds, `fields`, `addresses` and
`secret` the types of values. The JSON Schema and the reference page are made from these models. The models
read each key on its own. They must not compare keys, know a dialect by name, or read a file; what concerns
more than one key, or needs the dialect, is in `checks`.
"""
