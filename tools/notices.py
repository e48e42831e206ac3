"""Write the notices of all crates that are linked into the compiled module.

python tools/notices.py            writes THIRD_PARTY_NOTICES
python tools/notices.py --check    fails where it is not what would be written

Needs the sources of the crates, which cargo fetches. A crate that may be used under several
licences is used under the first of ACCEPTED that it offers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTICES = ROOT / "THIRD_PARTY_NOTICES"
MODULE = "dpsvm-py"
# What a file of the text may be called, by licence, the surest first; deny.toml accepts the same.
ACCEPTED = {
    "MIT": ("LICENSE[-_.]?MIT.*", r"LICEN[SC]E(\.md|\.txt)?", "COPYING"),
    "Apache-2.0": ("LICENSE[-_.]?APACHE.*", "LICENSE"),
    "Apache-2.0 WITH LLVM-exception": ("LICENSE.*",),
    "BSD-2-Clause": ("LICENSE[-_.]?BSD.*", "LICENSE.*"),
    "Unicode-3.0": ("LICENSE[-_.]?UNICODE.*",),
}
# The words of the licence, from our own copy.
MIT = "Permission" + (ROOT / "LICENSE-MIT").read_text(encoding="utf-8").partition("Permission")[2]
HEADER = """Notices of third parties

The compiled module dpsvm_fast._core contains the Rust crates below, on some platform at least, and
the Rust standard library. Written by tools/notices.py from Cargo.lock.
"""


def linked(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the crates that the module may link: no build scripts' and no macros' own."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found: dict[str, dict[str, Any]] = {}
    open_ids = [key for key, package in packages.items() if package["name"] == MODULE]
    while open_ids:
        package = packages[open_ids.pop()]
        macro = any("proc-macro" in target["kind"] for target in package["targets"])
        if package["id"] in found or macro:
            continue
        found[package["id"]] = package
        for dependency in nodes[package["id"]]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                open_ids.append(dependency["pkg"])
    outside = [package for package in found.values() if package["source"] is not None]
    return sorted(outside, key=lambda package: (package["name"], package["version"]))


def built() -> set[tuple[str, str]]:
    """Return name and version of the crates whose features a build chooses, on any platform."""
    command = ["cargo", "tree", "--locked", "--package", MODULE, "--edges", "normal"]
    command += ["--target", "all", "--prefix", "none", "--format", "{p}"]
    lines = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    return {(name, version.removeprefix("v")) for name, version, *_ in map(str.split, lines)}


def chosen(expression: str) -> list[str]:
    """Return the licences under which a crate is used; none where none is accepted."""
    every = re.split(r"\s+AND\s+", expression)
    found = []
    for part in every:
        offered = [one.strip(" ()") for one in re.split(r"\s+OR\s+|/", part)]
        found += [one for one in ACCEPTED if one in offered][:1]
    return found if len(found) == len(every) else []


def text(package: dict[str, Any], licence: str) -> str:
    """Return the crate's own text of a licence, or the usual one with the authors it names."""
    files = sorted(Path(package["manifest_path"]).parent.iterdir())
    for pattern in ACCEPTED[licence]:
        for file in files:
            if re.fullmatch(pattern, file.name, flags=re.IGNORECASE):
                content = file.read_text(encoding="utf-8").strip()
                return "\n".join(line.rstrip() for line in content.splitlines())
    if licence != "MIT":
        raise SystemExit(f"{package['name']} has no text of {licence}")
    authors = ", ".join(author.split(" <")[0] for author in package["authors"])
    return f"Copyright (c) {authors or 'the authors of ' + package['name']}\n\n{MIT.strip()}"


def notices() -> str:
    """Return the whole file: crates with the same text share it."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    metadata = json.loads(subprocess.check_output(command, cwd=ROOT))
    sections: dict[str, list[str]] = {}
    rust = f"Copyright (c) The Rust Project Contributors\n\n{MIT.strip()}"
    sections.setdefault(rust, []).append("Rust standard library (MIT)")
    crates = built()
    for package in linked(metadata):
        # The metadata name optional crates that no feature asks for.
        if (package["name"], package["version"]) not in crates:
            continue
        name = f"{package['name']} {package['version']}"
        licences = chosen(package["license"] or "")
        if not licences:
            raise SystemExit(f"{name}: no accepted licence in {package['license']!r}")
        for licence in licences:
            sections.setdefault(text(package, licence), []).append(f"{name} ({licence})")
    rule = "-" * 80
    parts = ["\n".join([rule, *names, rule, "", body, ""]) for body, names in sections.items()]
    return "\n".join([HEADER, *parts])


def main(arguments: Sequence[str]) -> int:
    """Write the file, or compare it."""
    wanted = notices()
    if "--check" not in arguments:
        NOTICES.write_text(wanted, encoding="utf-8")
        return 0
    if NOTICES.read_text(encoding="utf-8") == wanted:
        return 0
    print("THIRD_PARTY_NOTICES is out of date; run python tools/notices.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
