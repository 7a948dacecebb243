"""Who did what."""

from warpbook.report.evidence import Evidence
from warpbook.report.views.components import HtmlTable, words


def division_of_labour_view(ev: Evidence) -> HtmlTable | None:
    """The authors' contributions; None where the configuration names none."""
    contributions = ev.config.report.contributions
    if not contributions:
        return None
    caption = "Who did what, as the configuration has it."
    return HtmlTable("labour-table", caption, words("Author", "Contribution"), tuple(contributions.items()))
