"""Remove from a wheel what differs between two builds: times, folders, serial numbers.

python tools/reproducible_wheel.py WHEEL...

tools/wheel.sh makes the compiled module reproducible.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

# The folder of the source in the names of its crates.
FOLDER = re.compile(r"path\+file://[^#\"]*?/(rust/\w+|[\w.]*)(?=[#\"])")
EARLIEST = (1980, 1, 1, 0, 0, 0)


def without_traces(text: str) -> str:
    """Return a list of components without its serial number, its time and the folder it lay in."""
    record = json.loads(FOLDER.sub(r"path+file:///\1", text))
    record.pop("serialNumber", None)
    record.get("metadata", {}).pop("timestamp", None)
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def rewrite(wheel: Path) -> None:
    """Write the wheel anew, its files in the order of their names."""
    with zipfile.ZipFile(wheel) as old:
        files = {entry.filename: (old.read(entry), entry) for entry in old.infolist()}
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    contents = {name: content for name, (content, _) in files.items() if name != record}
    for name, content in contents.items():
        if "/sboms/" in name:
            contents[name] = without_traces(content.decode()).encode()
    lines = [line(name, contents[name]) for name in sorted(contents)]
    contents[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        # RECORD comes last, as the standard recommends.
        for name in [*sorted(set(contents) - {record}), record]:
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.external_attr = files[name][1].external_attr
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(entry, contents[name])


def main(arguments: Sequence[str]) -> int:
    """Rewrite wheels in place and print their digests."""
    if not arguments:
        print("usage: reproducible_wheel.py WHEEL...", file=sys.stderr)
        return 2
    for wheel in map(Path, arguments):
        rewrite(wheel)
        print(f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
