"""What the project installs and what its workflow may do: named by content, checked, and no more than is needed."""

import re

import yaml

from warpbook.common.files import PROJECT

LOCKS = sorted((PROJECT / "requirements").glob("*.txt"))
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))


def test_every_package_of_a_lock_is_pinned_and_named_by_hash():
    for path in LOCKS:
        entries = [entry for entry in re.split(r"\n(?=\S)", path.read_text()) if entry and not entry.startswith("#")]
        assert len(entries) > 10
        for entry in entries:
            assert re.match(r"[\w.-]+(\[\w+\])?==[\w.]+", entry), entry
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_the_installer_takes_what_a_lock_names_alone():
    installs = [line for line in (PROJECT / "scripts/install.sh").read_text().splitlines() if "pip install" in line]
    assert installs
    assert all("--require-hashes -r" in line for line in installs)


def test_a_conda_environment_takes_what_a_lock_names_alone():
    dependencies = yaml.safe_load((PROJECT / "requirements/conda.yaml").read_text())["dependencies"]
    option, lock = next(entry["pip"] for entry in dependencies if isinstance(entry, dict))
    assert option == "--require-hashes"
    assert lock.startswith("-r ../../requirements/")
    assert (PROJECT / "requirements" / lock.rpartition("/")[2]).exists()


def test_a_workflow_uses_actions_by_commit_and_may_only_read_but_for_a_comment():
    for path in WORKFLOWS:
        text = path.read_text()
        uses = re.findall(r"uses: *(\S+)", text)
        assert uses
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action) for action in uses)
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read"}
        allowed = {name: job for name, job in workflow["jobs"].items() if "permissions" in job}
        for job in allowed.values():  # to write a comment, and to run no code of the change meanwhile
            assert job["permissions"] == {"pull-requests": "write"}
            assert not any("uses" in step for step in job["steps"])
        steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
        checkouts = [step for step in steps if "actions/checkout" in step.get("uses", "")]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_every_lock_is_looked_up_for_known_vulnerabilities():
    jobs = yaml.safe_load((PROJECT / ".github/workflows/report.yml").read_text())["jobs"]
    audited = " ".join(step.get("run", "") for step in jobs["audit"]["steps"])
    assert "pip-audit==" in audited
    for path in LOCKS:
        assert f"-r requirements/{path.name}" in audited


def test_the_workflow_keeps_a_bill_of_materials_of_every_lock():
    steps = yaml.safe_load((PROJECT / ".github/workflows/report.yml").read_text())["jobs"]["audit"]["steps"]
    (step,) = [step for step in steps if "cyclonedx" in step.get("run", "")]
    assert "for lock in requirements/*.txt" in step["run"]
    assert re.search(r"cyclonedx-bom==[\d.]+ cyclonedx-py requirements \"\$lock\"", step["run"])
    assert any(other.get("with", {}).get("path") == "bills-of-materials/" for other in steps)
