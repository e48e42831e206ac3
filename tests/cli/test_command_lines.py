"""Whatever is typed after ``dpsvm-fast``: an exit code of the list, and no traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("click")
pytest.importorskip("pyarrow")

from dpsvm_fast import OutputPerturbationSVC, PrivacyLedger
from dpsvm_fast.cli import main
from dpsvm_fast.persist import save_model


def words_of(text: str) -> list[str]:
    """Words of a line."""
    return text.split()


CODES = {0, 1, 2, 3, 130}
SCHEMA = 'target = "y"\nclasses = ["a", "b"]\n[columns]\nx = { bounds = [0, 1] }\n'
# Those that work for seconds where nothing is wrong.
LONG = ("audit", "bench", "demo")
COMMANDS = ("fit", "tune", "predict", "plan", "budget", "statement", "verify", *LONG, "fitt", "")
OPTIONS = words_of(
    "--epsilon --delta --schema --target --budget --model --mechanism --kernel --grid "
    "--strategy --max-memory --format --seed --threads --adjacency --samples --features --classes "
    "--C --data-norm -o --output --certificate --test-data --force --json --scores --plot --key "
    "--write-schema --probabilities --help --version create show"
)
FILES = words_of("t.csv t.toml t.json c.json t.budget new.csv new.json new.png . nowhere/x.json")
VALUES = words_of(
    "1 0 -1 0.5 1e-5 1e400 nan inf 1,0 one auto linear objective gradient rbf C=1,2 C= =1 margin=0 "
    "c=1 2GB -5MiB 10TB csv add_remove y x 99999999999999999999"
)
WORDS = st.one_of(
    *map(st.sampled_from, (OPTIONS, OPTIONS, FILES, VALUES)),
    st.tuples(st.sampled_from(OPTIONS), st.sampled_from(VALUES)).map("=".join),
    st.text(max_size=6),
)
# What comes near to being done.
NEAR = {
    "fit": ["t.csv", "--schema", "t.toml", "--epsilon", "1", "-o", "new.json", "--force"],
    "tune": ["t.csv", "--schema", "t.toml", "--epsilon", "1", "-o", "new.json", "--force"],
    "plan": ["--epsilon", "1", "--delta", "1e-5", "--features", "3", "--classes", "2"],
    "predict": ["t.json", "t.csv", "-o", "new.csv", "--force"],
    "budget": ["show", "t.budget"],
    "statement": ["t.json"],
    "verify": ["c.json"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with one file of each kind; tests work in it."""
    folder = tmp_path_factory.mktemp("typed")
    model = OutputPerturbationSVC(1.0, 1e-5, classes=["a", "b"]).fit([[0.0], [1.0]], ["a", "b"])
    save_model(model, folder / "t.json")
    (folder / "c.json").write_text(model.privacy_.to_json())
    (folder / "t.csv").write_text("x,y\n" + "0.25,a\n0.75,b\n" * 20)
    (folder / "t.toml").write_text(SCHEMA)
    PrivacyLedger(4.0, 1e-5, path=folder / "t.budget")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@st.composite
def typed(draw: st.DrawFn) -> list[str]:
    """A command, perhaps what it needs, and anything else anywhere."""
    command = draw(st.sampled_from(COMMANDS))
    words = list(NEAR.get(command, [])) if draw(st.booleans()) else []
    for word in draw(st.lists(WORDS, max_size=4)):
        words.insert(draw(st.integers(0, len(words))), word)
    return [command, *words, *(["--no-such-option"] if command in LONG else [])]


@settings(suppress_health_check=list(HealthCheck))
@given(words=typed())
@pytest.mark.filterwarnings("ignore::dpsvm_fast.exceptions.NotPrivateWarning")
def test_nothing_that_is_typed_is_a_traceback(
    place: Path, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    code = main(words)
    out, err = capfd.readouterr()
    assert code in CODES
    assert "Traceback" not in out + err
    assert "unexpected " not in err.replace("got unexpected extra arg", ""), err
    if code >= 2:
        assert err.startswith("dpsvm-fast: ") or "\ndpsvm-fast: " in err
    if code >= 2 and "--json" in words:
        assert json.loads(out)["exit_code"] == code
