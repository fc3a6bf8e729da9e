"""The file as text: YAML with positions, problems, and the model applied to the tree.

`tree` reads YAML into nodes with positions, `problem` shows what is wrong with a file, `document` applies the
model to the tree and finds the position of each error. This package checks form only. It must not know what a
key means, and no rule that concerns more than one key belongs here: those are in `checks`.
"""
