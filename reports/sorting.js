// Tables that sort by the column whose head is chosen: numbers by their size, times across units, words by alphabet.
const UNITS = { ns: 1e-9, "µs": 1e-6, us: 1e-6, ms: 1e-3, s: 1, K: 1e3, M: 1e6, G: 1e9 };

function worth(text) {
  const found = text.replace(/[\u202f\u00a0]/g, "").match(/^[−-]?[\d.]+(e[−+-]?\d+)?(ns|µs|us|ms|s|K|M|G)?/);
  if (!found) return NaN;
  return parseFloat(found[0].replace(/−/g, "-")) * (UNITS[found[2]] ?? 1);
}

function sort(table, column, ascending) {
  const rows = [...table.tBodies[0].rows].map((row) => [row.cells[column]?.textContent.trim() ?? "", row]);
  rows.sort(([a], [b]) => {
    const difference = worth(a) - worth(b);
    if (!Number.isNaN(difference)) return ascending ? difference : -difference;
    if (Number.isNaN(worth(a)) !== Number.isNaN(worth(b))) return Number.isNaN(worth(a)) ? 1 : -1;  // those without, last
    return ascending ? a.localeCompare(b) : b.localeCompare(a);
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.data")) {
  if (!table.tBodies.length || table.tBodies[0].rows.length < 3) continue;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent || head.classList.contains("picture")) return;
    const choose = () => {
      const ascending = head.ariaSort !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
      head.ariaSort = ascending ? "ascending" : "descending";
      sort(table, column, ascending);
    };
    head.tabIndex = 0;
    head.classList.add("sortable");
    head.addEventListener("click", choose);
    head.addEventListener("keydown", (event) => event.key === "Enter" && choose());
  });
}
