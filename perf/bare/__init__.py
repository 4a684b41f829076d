"""This machine without any system: processor, memory, disk, sockets. The limits beside every figure."""
