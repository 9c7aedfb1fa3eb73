#!/usr/bin/env python3
"""Fails if a relative link in a *.md file, or the path of a document in any file, leads nowhere; headings count."""
import pathlib, re, subprocess, sys

top = pathlib.Path(__file__).resolve().parent.parent
files = [top / name for name in subprocess.check_output(["git", "ls-files"], cwd=top, text=True).splitlines()]


def anchors(document):
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


dead = []
for file in files:
    if not file.is_file() or file.is_symlink() or file.suffix not in {".md", ".rs", ".sh", ".toml", ".py", ".json", ""}:
        continue
    text = file.read_text(errors="replace")
    if file.suffix == ".md":
        for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            target = file.parent / path if path else file
            if not target.exists() or anchor and anchor not in anchors(target):
                dead.append(f"{file.relative_to(top)}: {link}")
    dead += [f"{file.relative_to(top)}: {path}" for path in re.findall(r"\bdocs/[\w/-]+\.md\b", text) if not (top / path).exists()]
print("\n".join(dead))
sys.exit(bool(dead))
