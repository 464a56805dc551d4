"""ARCHITECTURE.md names files that exist, and every folder of the package."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "smoothlink"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def test_every_file_that_the_page_names_exists():
    for name in set(re.findall(r"[\w/]+\.py", PAGE)):
        assert (PACKAGE / name).exists() or (ROOT / name).exists() or (ROOT / "tests" / name).exists(), name


def test_the_page_names_every_folder_and_every_module_of_the_root():
    for path in PACKAGE.iterdir():
        if path.is_dir() and path.name != "__pycache__":
            assert f"`{path.name}/`" in PAGE, path.name
        elif path.suffix == ".py" and not path.name.startswith("__"):
            assert f"`{path.name}`" in PAGE, path.name
