"""The family of Chef servers: Chef Infra Server from 12.0 (erchef), goiardi and chef-zero.

`dialect` holds the dialect `chef` with the documents at `/server_api_version`, which the gateway serves
itself. `version_object` reads and writes the version numbers and the object in `X-Ops-Server-API-Version`. A
module here must not import another family, and must not change the path or the body of a request: clients
sign both.
"""
