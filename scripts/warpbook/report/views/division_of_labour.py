"""Who did what."""

from warpbook.report.evidence import Evidence
from warpbook.report.views.components import Table, words


def view(ev: Evidence) -> Table | None:
    """The authors' contributions; None where the configuration names none."""
    contributions = ev.config.report.contributions
    if not contributions:
        return None
    caption = "Who did what, as the configuration has it."
    return Table("labour-table", caption, words("Author", "Contribution"), tuple(contributions.items()))
