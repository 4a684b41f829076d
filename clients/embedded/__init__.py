"""A broker inside this process: `file://` directories and `mem://`."""
