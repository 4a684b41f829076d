"""What pyproject.toml cannot say: the description on PyPI is README.md without links into the repository.

There they would lead nowhere, so their words stay and the links go. All else is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

INSIDE = re.compile(r"\[([^\]\n]+)\]\((?![a-z]+:)[^)\s]+\)")
README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")

setup(long_description=INSIDE.sub(r"\1", README), long_description_content_type="text/markdown")
