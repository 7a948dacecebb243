"""Try the attacks on the harness: a row for each, caught or missed. With --update-doc, a missed attack is a failure."""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from warpbook.common.errors import exit_status
from warpbook.common.files import atomic_write
from warpbook.harness.attacks import attack_registry
from warpbook.machine.host import require_target
from warpbook.runs import tables

PARALLEL_ATTACKS = 4
BEGIN, END = "<!-- attacks -->\n", "<!-- end of attacks -->\n"


def attack_row(name: str, device: str) -> dict[str, Any]:
    """A row of ATTACKS."""
    with tempfile.TemporaryDirectory() as folder:
        failure = attack_registry.try_attack(attack_registry.ATTACKS[name], device, Path(folder))
    outcome = failure or {"status": "ok", "reason": ""}
    caught_by = attack_registry.check_behind(outcome["reason"])
    return {"attack": name, "device": device, "caught": failure is not None, **outcome, "caught_by": caught_by}


def insert_table(text: str) -> str:
    """A page with the table of attacks between its two marks."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + attack_registry.document() + END + rest.split(END)[1]


def main() -> int | None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=attack_registry.DEVICES, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--update-doc", type=Path, help="page whose table of attacks is rewritten")
    arguments = parser.parse_args()
    require_target("gpu" if "gpu" in arguments.device else "")
    tried = [
        (name, device)
        for device in arguments.device
        for name, attack in attack_registry.ATTACKS.items()
        if attack.expected_words(device) is not None
    ]
    with ThreadPoolExecutor(PARALLEL_ATTACKS) as pool:
        rows = list(pool.map(lambda place: attack_row(*place), tried))
    tables.ATTACKS.write(rows, arguments.out)
    wrong = 0
    for row in rows:
        expected = attack_registry.ATTACKS[row["attack"]].expected_words(row["device"]) or ""
        if not row["caught"]:
            print(f"MISSED: a kernel that {row['attack']} ({row['device']})")
        elif row["caught_by"] != attack_registry.check_behind(expected):
            wrong += 1
            print(f"a kernel that {row['attack']} ({row['device']}) was to be told {expected!r}: {row['reason']}")
    if not arguments.update_doc:
        return None
    with atomic_write(arguments.update_doc) as temporary:
        temporary.write_text(insert_table(arguments.update_doc.read_text()))
    return int(wrong > 0 or not all(row["caught"] for row in rows))


if __name__ == "__main__":
    sys.exit(exit_status(main))
