"""The operations page at `/ui/`: what an operator has to know in the middle of an upgrade, on one screen.

    model (values)  <-  facts (from AdminContext)
    model  ->  rendering (Jinja2, autoescaped)  ->  pages (whole), stream (what has changed, as events)
    sessions, sign_in, controls: who may command, and what a command will change

The page is whole without JavaScript. Nothing in it comes from elsewhere, and it decides nothing: commands go
the way of the admin API.
"""
