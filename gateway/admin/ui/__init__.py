"""The operations page at `/ui/`: what an operator has to know in the middle of an upgrade, on one screen.

    model (values)  <-  contents (from AdminContext)
    model  ->  rendering (Jinja2, autoescaped)  ->  pages (whole), stream (what has changed, as events)
    sessions, sign_in, controls: who may command, and what a command will change

Belongs here: what the page shows and how, its sessions and its forms. The page is whole without JavaScript,
and nothing in it comes from elsewhere. Does not belong here: what is true (`telemetry.status`), and the
commands themselves, which go the way of the admin API (`admin.commands`): the page decides nothing.
"""
