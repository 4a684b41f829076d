"""The console: pages of a broker for people, at `/` of the HTTP door (decision 108).

Idea: a page is an operation of the door like any other, so authentication, bounds and rights are those of its API, and
what a page changes it changes by calling an operation of the API. Pages are made here and are complete without a
script; htmx has them made again every two seconds and changes what differs.

Contract: nothing of a broker's records and names is markup on a page. Nothing is loaded from outside.
"""
