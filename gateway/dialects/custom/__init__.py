"""TRANSLATES any other API: the dialect `custom`, which an operator describes in the configuration.

Three modules know the operator's options:

- `options`: every key with its default and the reason for it. Values only.
- `option_reader`: makes the parts of a dialect from the options. `option_problems` collects all mistakes.
- `dialect`: the dialect itself, composed of these parts.

The others know no option, and nothing that came from the network makes them raise:

- `locations`, `media_types`: where a version stands in a request (header, query, path, media type).
- `spellings`: which other spellings of a name or a path servers take for the configured one.
- `codec`, `json_path`: where a version stands in documents and response headers.
- `probes`: what follows for clients from the paths that probes request, and why a probe found no versions.
- `error_bodies`: the bodies of refusals and errors that the gateway makes itself.

No module here may know an API by its name, import another family of dialects or perform I/O. An API that
needs more than options can say gets a family of its own.
"""
