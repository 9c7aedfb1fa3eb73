"""The wheels: of this client, and of the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from conftest import BINARY, TOP

pytestmark = pytest.mark.nightly

AGENT = """
import runlog, runlog_server
from runlog import sync
from runlog.testing import Journals, find_binary

print(runlog.__file__, find_binary(), runlog_server.binary(), sep="\\n")
journals = Journals()
with journals.journal() as journal, sync.connect(journal.url) as rl:
    print(rl.open("trip-1").call("book_flight", {"flight": "HAT136"}, lambda call: "B-1009").result)
    journal.kill()
    journal.start()
    print(rl.recover("trip-1").completed[0]["tool_name"])
journals.close()
"""


def run(*command: object, **settings: str) -> str:
    """Runs a command without this repository's environment, except `settings`. Returns its output."""
    environment = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    ended = subprocess.run(
        [str(part) for part in command],
        env={**environment, **settings},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def build(top: Path, folder: Path) -> list[Path]:
    settings = {"RUNLOG_BIN_DIR": str(BINARY.parent), "SOURCE_DATE_EPOCH": "1700000000"}
    run(top / "scripts" / "python.sh", "wheels", folder, **settings)
    return sorted(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build(TOP, tmp_path_factory.mktemp("wheels"))


def test_the_same_files_give_the_same_bytes(wheels, tmp_path):
    # In another place, with other times and other permissions.
    for folder in ("scripts", "clients/python", "clients/python-server"):
        shutil.copytree(TOP / folder, tmp_path / folder, copy_function=shutil.copyfile)
    for script in (tmp_path / "scripts").iterdir():
        script.chmod(0o700)
    again = build(tmp_path, tmp_path / "wheels")
    assert [wheel.name for wheel in again] == [wheel.name for wheel in wheels] and len(wheels) == 2
    for one, other in zip(wheels, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_each_has_its_licences_and_says_where_it_runs(wheels):
    pure, binary = wheels
    assert pure.name.endswith("-py3-none-any.whl")
    assert binary.name.endswith(f"-py3-none-{sysconfig.get_platform().replace('-', '_')}.whl")
    for wheel in wheels:
        names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if "/licenses/" in name}
        assert {"LICENSE-APACHE", "LICENSE-MIT"} <= names
        assert "NOTICE" in names or wheel is pure


@pytest.fixture(scope="module")
def fresh(wheels, tmp_path_factory) -> Path:
    """The programs of an environment with both wheels, and with the dependencies of the client from this environment."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "-q"]
    run(*pip, "--no-index", "--no-deps", *wheels)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_a_fresh_environment_with_both_wheels_has_a_journal(fresh):
    client, found, binary, result, tool = run(fresh / "python", "-c", AGENT, PATH="/usr/bin:/bin").split("\n")[:-1]
    assert Path(client).is_relative_to(fresh.parent) and Path(binary).is_relative_to(fresh.parent)
    assert found == binary and (result, tool) == ("B-1009", "book_flight")


def test_the_environment_has_the_command_which_is_of_the_clients_version(fresh):
    versions = {run(fresh / "runlog", "--version")}
    for name in ("runlog-client", "runlog-server"):
        ask = f"import importlib.metadata as found; print('runlog', found.version('{name}'))"
        versions.add(run(fresh / "python", "-c", ask))
    assert len(versions) == 1
    # With the environment on the PATH, the client finds the program of the environment.
    path = f"{fresh}:/usr/bin:/bin"
    assert run(fresh / "python", "-c", AGENT, PATH=path).split("\n")[1:4:2] == [str(fresh / "runlog"), "B-1009"]


def test_a_wheel_without_the_command_is_not_built(tmp_path):
    with pytest.raises(AssertionError, match="make build makes it"):
        run(TOP / "scripts" / "python.sh", "wheels", tmp_path / "wheels", RUNLOG_BIN_DIR=str(tmp_path))
