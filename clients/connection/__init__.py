"""Connections: requests and answers over any channel, kept up across lost connections."""
