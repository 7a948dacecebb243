"""Put the rows of every submission's report into one table: CSV, PDF and HTML."""

import argparse
import json
import sys
from pathlib import Path

from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import atomic_write
from warpbook.config.course_term import Term
from warpbook.course.grades_table import GRADES
from warpbook.report import pdf, rendering


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="the study of the term, as JSON")
    parser.add_argument("--reports", type=Path, nargs="+", required=True, help="folders of the submissions' reports")
    parser.add_argument("--out", type=Path, required=True, help="folder of the table")
    arguments = parser.parse_args()
    rows = [row for folder in arguments.reports for row in _rows(folder)]
    (study,) = arguments.config["studies"].values()
    term = Term.model_validate(study["course"])
    document = rendering.grades_html(study["title"], term, max(study["sizes"]), rows)
    with atomic_write(arguments.out) as out:
        out.mkdir()
        GRADES.write(rows, out / GRADES.name)
        (out / "grades.html").write_text(rendering.embed_assets(document), encoding="utf-8")
        pdf.within_limits(lambda: pdf.write_untrusted_pdf(document, out / "grades.pdf"))
    print(f"Table over {len(arguments.reports)} submissions: {arguments.out / 'grades.pdf'}")


def _rows(folder: Path) -> list[dict[str, object]]:
    files = sorted(folder.glob("*.csv"))
    if len(files) != 1:
        raise UserError(
            f"{folder} holds {len(files)} tables, and a report's folder holds one; remove it and start again"
        )
    return GRADES.rows(files[0])


if __name__ == "__main__":
    sys.exit(exit_status(main))
