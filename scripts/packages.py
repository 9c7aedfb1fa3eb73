#!/usr/bin/env python3
"""packages.py [verify]   Packages the crates that other programs depend on, in target/package, without a network.

Fails if one of them could not be published: a path dependency without a version, a file that its code includes and the package
does not have, no README or licence text. `verify` also compiles each one as it is packaged, which takes minutes."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

top = pathlib.Path(__file__).resolve().parent.parent
target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", top / "target"))
INCLUDES = re.compile(r'include_(?:str|bytes)!\(\s*"([^"]+)"')
SEEN = {"README.md", "LICENSE-APACHE", "LICENSE-MIT", "Cargo.toml"}


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=top, check=True, stdout=subprocess.PIPE, timeout=5400).stdout


def faults(name, version):
    """The missing parts of a package."""
    folder = f"{name}-{version}"
    with tarfile.open(target / "package" / f"{folder}.crate") as archive:
        files = {os.path.relpath(entry.name, folder): entry for entry in archive.getmembers()}
        for missing in sorted(SEEN - files.keys()):
            yield f"{name}: has no {missing}"
        for path, entry in files.items():
            if entry.issym() or entry.islnk():
                yield f"{name}: {path} is a link"
            elif path.endswith(".rs"):
                for included in INCLUDES.findall(archive.extractfile(entry).read().decode()):
                    if os.path.normpath(os.path.join(os.path.dirname(path), included)) not in files:
                        yield f"{name}: {path} includes {included}, which is not packaged"


found = json.loads(cargo("metadata", "--no-deps", "--offline", "--format-version=1"))["packages"]
packages = [(package["name"], package["version"]) for package in found if package["publish"] is None]
flags = [] if sys.argv[1:] == ["verify"] else ["--no-verify"]
# Packages the working tree, with its uncommitted changes.
cargo("package", "--quiet", "--offline", "--allow-dirty", *flags, *(f"--package={name}" for name, _ in packages))
lacking = [fault for name, version in packages for fault in faults(name, version)]
print("\n".join(lacking or [f"{len(packages)} crates packaged: {' '.join(name for name, _ in packages)}"]))
sys.exit(bool(lacking))
