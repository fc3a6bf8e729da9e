"""The operations page at `/ui/`: the state of an upgrade on one screen.

    model (values)  <-  contents (from AdminContext)
    model  ->  rendering (Jinja2, autoescaped)  ->  pages (whole), stream (changes, as events)
    sessions, sign_in, controls: access to commands, and their effects

Belongs here: the content and look of the page, its sessions and its forms. The page is complete without
JavaScript, and loads nothing from elsewhere. Does not belong here: the status itself (`telemetry.status`),
and the commands, which are those of the admin API (`admin.commands`): the page decides nothing.
"""
