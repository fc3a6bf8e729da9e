"""TRANSLATES any other API: the dialect `custom`, which an operator describes in the configuration.

- `options`: every key with its default and the reason for it. Values only.
- `option_reader`: makes an `ApiDescription` from the options. `option_problems` collects all mistakes.
- `dialect`: the dialect itself, which works with that description.

The others know no option, and nothing from the network makes them raise:

- `locations`, `media_types`: places of a version in a request (header, query, path, media type).
- `spellings`: other spellings of a name or a path that servers take for the configured one.
- `codec`, `json_path`: versions in documents and response headers.
- `probes`: effects of the probed paths on clients, and why a probe found no versions.
- `error_bodies`: bodies of refusals and errors that the gateway makes itself.

No module here may know an API by its name. An API that needs more than options gets a family of its own.
"""
