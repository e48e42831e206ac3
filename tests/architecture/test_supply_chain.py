"""What the wheel is made of: notices and licences that agree; the same bytes from any folder."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from oracles.scripts import module_of

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> Any:
    """Import a script of the folder of tools."""
    return module_of(f"tools/{name}.py")


notices, reproducible_wheel = tool("notices"), tool("reproducible_wheel")


def test_notices_are_of_the_crates_in_use() -> None:
    """Where all sources of the crates are at hand tools/supply_chain.sh compares every word."""
    text = notices.NOTICES.read_text(encoding="utf-8")
    named = set(re.findall(r"^([\w-]+) (\d[\w.+-]*) \(", text, flags=re.MULTILINE))
    lock = (ROOT / "Cargo.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r'^name = "(.*)"\nversion = "(.*)"', lock, flags=re.MULTILINE))
    assert named <= locked, named - locked
    core = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    direct = core.partition("[workspace.dependencies]")[2].partition("\n[")[0]
    wanted = set(re.findall(r"^([\w-]+) = ", direct, flags=re.MULTILINE)) - {"dpsvm-core"}
    package = (ROOT / "rust" / "core" / "Cargo.toml").read_text(encoding="utf-8")
    of_tests = package.partition("[dev-dependencies]")[2].partition("\n[")[0]
    wanted -= set(re.findall(r"^([\w-]+)[ .]", of_tests, flags=re.MULTILINE))
    assert len(wanted) > 5
    assert wanted <= {name for name, _ in named}


def test_one_list_of_licences() -> None:
    allowed = re.search(r"^allow = \[(.*)\]", (ROOT / "deny.toml").read_text(), flags=re.MULTILINE)
    assert allowed is not None
    assert set(re.findall(r'"(.*?)"', allowed[1])) == set(notices.ACCEPTED)
    assert notices.chosen("Zlib OR Apache-2.0 OR MIT") == ["MIT"]
    assert notices.chosen("(MIT OR Apache-2.0) AND Unicode-3.0") == ["MIT", "Unicode-3.0"]
    assert notices.chosen("MIT AND GPL-3.0") == []


def test_notices_leave_out_what_only_builds() -> None:
    def package(name: str, kind: str = "lib", source: str | None = "registry") -> dict[str, object]:
        targets = [{"kind": [kind]}]
        return {"id": name, "name": name, "version": "1", "targets": targets, "source": source}

    def node(name: str, *deps: tuple[str, str | None]) -> dict[str, object]:
        kinds = [{"pkg": pkg, "dep_kinds": [{"kind": kind}]} for pkg, kind in deps]
        return {"id": name, "deps": kinds}

    packages = [package(name) for name in ("linked", "script", "of_macro")]
    packages += [package("macro", "proc-macro"), package(notices.MODULE, source=None)]
    nodes = [node(name) for name in ("linked", "script", "of_macro")]
    nodes += [node("macro", ("of_macro", None))]
    nodes += [node(notices.MODULE, ("linked", None), ("script", "build"), ("macro", None))]
    found = notices.linked({"packages": packages, "resolve": {"nodes": nodes}})
    assert [one["name"] for one in found] == ["linked"]


def build(path: Path, folder: str, serial: str, year: int) -> Path:
    """Write a wheel as maturin does in a folder."""
    root = f"path+file://{folder}"
    component = {"bom-ref": f"{root}/rust/py#dpsvm-py@0.1.0", "name": "dpsvm-py"}
    metadata = {"timestamp": f"{year}-01-01T00:00:00Z", "component": component}
    components = {
        "serialNumber": f"urn:uuid:{serial}",
        "metadata": metadata,
        "dependencies": [{"ref": f"{root}/rust/core#dpsvm-core@0.1.0"}],
    }
    files = {
        "package/__init__.py": "x = 1\n",
        "a-1.dist-info/sboms/a.cyclonedx.json": json.dumps(components),
        "a-1.dist-info/RECORD": f"made in {folder}",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name in sorted(files, reverse=year > 2000):
            entry = zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, files[name])
    return path


def test_wheels_of_two_folders_have_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = build(tmp_path / "one.whl", "/home/a/src", "1-2", 1999)
    other = build(tmp_path / "other.whl", "/very/different/folder", "3-4", 2026)
    assert one.read_bytes() != other.read_bytes()
    assert reproducible_wheel.main([str(one), str(other)]) == 0
    assert one.read_bytes() == other.read_bytes()
    assert len({line.split()[0] for line in capsys.readouterr().out.splitlines()}) == 1
    with zipfile.ZipFile(one) as wheel:
        record = wheel.read("a-1.dist-info/RECORD").decode()
        for name in set(wheel.namelist()) - {"a-1.dist-info/RECORD"}:
            assert reproducible_wheel.line(name, wheel.read(name)) in record.splitlines()
            assert b"/folder" not in wheel.read(name)
            assert b"/home" not in wheel.read(name)
