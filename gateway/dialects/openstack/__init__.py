"""The family of OpenStack services with microversions (X.Y), from Juno to 2026.2.

Dialects, one a module:

- `ironic`, `nova` and `senlin` are written for one service each, because its servers depart from the
  guideline in ways that a table cannot express.
- `guideline` holds the dialect `openstack`: the API-SIG microversion guideline, with a profile for each
  service that departs from it in a few points.

Shared code: `microversion` has the functions that all four dialects use, `services` the profiles and the
options of `guideline`, `service_origin` the service from which a response to a probe comes. A module here
must not import another family. No dialect imports another dialect, and the shared code imports no dialect.
"""
