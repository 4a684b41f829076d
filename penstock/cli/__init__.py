"""The command `penstock`: one module per command or group of commands."""

from .app import main

__all__ = ["main"]
