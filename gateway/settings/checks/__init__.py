"""What the model cannot check: rules between keys, and everything that needs a service's dialect.

`document` checks the file as a whole, `services` and `operations` turn the model's services into those of
`core`. Each check reports everything that it finds and leaves the file as it is. It must not open a socket,
read the disk or the environment, or know a dialect by name.
"""
