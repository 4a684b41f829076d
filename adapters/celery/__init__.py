"""Celery and kombu over penstock: a transport and a result backend, reached by URLs (`penstock+unix:///path`).

kombu finds the transport through `kombu_penstock.py`, Celery the backend through an entry point (decision 134).
"""
