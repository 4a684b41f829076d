"""Connections: questions and their answers, kept going through losses, for any channel."""
