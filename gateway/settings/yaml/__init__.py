"""The configuration file as text: YAML with positions, problems, and the kinds of keys applied to the tree.

`tree` reads YAML into nodes with positions, `findings` collects problems, `problem` shows one, and `reader`
makes values from the tree. This package checks form only. It must not know what a key means. Rules between
keys belong to `sections`.
"""
