"""`python docs/generate`: writes the generated pages, README's table of figures, and the age of figures, anew."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from generate.ages import PAGES, with_age
from generate.api_page import api_page
from generate.command_page import command_page
from generate.figures import with_table
from generate.parameters_page import parameters_page, with_former

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    (ROOT / "docs" / "commands.md").write_text(command_page(), encoding="utf-8")
    (ROOT / "docs" / "api.md").write_text(api_page(), encoding="utf-8")
    (ROOT / "docs" / "parameters.md").write_text(parameters_page(), encoding="utf-8")
    migrating = ROOT / "docs" / "migrating.md"
    migrating.write_text(with_former(migrating.read_text(encoding="utf-8")), encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8"), ROOT), encoding="utf-8")
    for name in PAGES:
        page = ROOT / name
        page.write_text(with_age(page.read_text(encoding="utf-8"), name, ROOT), encoding="utf-8")


if __name__ == "__main__":
    main()
