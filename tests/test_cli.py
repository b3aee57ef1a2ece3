"""The command line: exit codes, and messages in the right place."""

import subprocess
import sys
import types

import pytest

from sklearn_dpop import ObjPertGDLogisticRegression, _demo
from sklearn_dpop.cli import main
from sklearn_dpop.privacy import compose_reports
from sklearn_dpop.privacy._calibration import calibrate_objective_perturbation
from sklearn_dpop.privacy._report import PrivacyReport, package_versions


@pytest.fixture
def path(tmp_path):
    report = PrivacyReport(
        mechanism="objective-perturbation-gd",
        estimator="ObjPertGDLogisticRegression",
        certificate=calibrate_objective_perturbation(1000, 5, epsilon=1.0, delta=1e-5),
        public_inputs={"classes": ["0", "1"], "n_classes": 2},
        assumptions=(),
        noise_source="ChaCha20, key from the operating system",
        seeded=False,
        warnings=(),
        versions=package_versions(),
    )
    path = tmp_path / "report.json"
    path.write_text(report.to_json())
    return path


def alter(path, find, put):
    text = path.read_text()
    assert find in text
    path.write_text(text.replace(find, put))


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "sklearn_dpop", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_verify_succeeds(path, capsys):
    assert main(["verify", str(path)]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("VERIFIED")
    assert output.err == ""


def test_verify_fails_on_an_altered_report(path, capsys):
    alter(path, '"delta": 1e-05', '"delta": 1e-06')
    assert main(["verify", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out.startswith("NOT VERIFIED")
    assert "delta at the stated epsilon" in output.out


def test_verify_takes_totals(tmp_path, capsys):
    model = ObjPertGDLogisticRegression(0.5, 1e-6, classes=[0, 1], calibration="tight")
    total = compose_reports([model.plan(300, 4)], delta=1e-5, fits=3)
    path = tmp_path / "total.json"
    path.write_text(total.to_json())
    assert main(["verify", str(path)]) == 0
    assert "declared: at most 3 fits of a record" in " ".join(capsys.readouterr().out.split())
    alter(path, '"fits": 3', '"fits": 4')
    assert main(["verify", str(path)]) == 1
    assert "delta at the stated epsilon" in capsys.readouterr().out
    alter(path, '"fits": 4', '"fits": "4"')
    assert main(["verify", str(path)]) == 2
    assert "fits='4'" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1])
def test_a_reader_who_stops_reading_does_not_change_the_outcome(path, code):
    if code:
        alter(path, '"delta": 1e-05', '"delta": 1e-06')
    command = f"'{sys.executable}' -m sklearn_dpop verify '{path}'; echo $? >&2"
    done = subprocess.run(
        f"({command}) | true", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stderr == f"{code}\n"


@pytest.mark.parametrize("code", [0, 1])
def test_quiet_prints_nothing(path, capsys, code):
    if code:
        alter(path, '"sigma": ', '"sigma": 1')
    assert main(["verify", str(path), "--quiet"]) == code
    output = capsys.readouterr()
    assert output.out == output.err == ""


@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        ('"delta": 1e-05', '"delta": NaN', "NaN: not a JSON number"),
        ('"schema_version": 1', '"schema_version": 9', "schema_version=9: must be 1"),
        ('"seeded": false,', "", "seeded: missing"),
        ('"mechanism"', '"a\\u001b[31m"', "mechanism: missing"),
    ],
)
def test_what_is_not_a_report_is_an_error(path, capsys, find, put, message):
    alter(path, find, put)
    assert main(["verify", str(path), "--quiet"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert "\x1b" not in output.err


@pytest.mark.parametrize("depth", [300, 600, 900, 5000])
def test_deep_nesting_is_no_crash(path, capsys, depth):
    # Between what the checks can walk through and what the parser refuses lie many depths.
    alter(path, '"n_classes": 2', f'"n_classes": {"[" * depth}{"]" * depth}')
    code = main(["verify", str(path), "--quiet"])
    assert code in (0, 1, 2)
    assert ("nested too deeply" in capsys.readouterr().err) == (code == 2)


def test_what_cannot_be_read_is_an_error(tmp_path, capsys):
    for bad in (tmp_path / "absent.json", tmp_path):
        assert main(["verify", str(bad)]) == 2
        output = capsys.readouterr()
        assert output.err.startswith(f"sklearn-dpop verify: {bad}: ")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\x00\xd8")
    assert main(["verify", str(binary)]) == 2


def test_bad_usage(capsys):
    assert main(["verify"]) == 2
    assert main(["unknown"]) == 2
    assert main(["--unknown"]) == 2
    assert "usage: sklearn-dpop" in capsys.readouterr().err


def test_without_arguments_prints_help(capsys):
    assert main([]) == 0
    assert "verify" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"sklearn-dpop {package_versions()['sklearn-dpop']}"


@pytest.mark.parametrize(("arguments", "folder"), [([], None), (["--output", "there"], "there")])
def test_demo_is_run_with_its_folder(monkeypatch, arguments, folder):
    calls = []
    fake = types.SimpleNamespace(run_demo=calls.append)
    monkeypatch.setitem(sys.modules, "sklearn_dpop._demo", fake)
    assert main(["demo", *arguments]) == 0
    assert calls == [folder]


@pytest.mark.parametrize("drawn", [True, False])
def test_demo_leaves_out_only_the_pictures_without_matplotlib(
    monkeypatch, tmp_path, capsys, drawn
):
    if drawn:
        pytest.importorskip("matplotlib")
    else:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(_demo, "_EPSILONS", (1.0,))
    monkeypatch.setattr(_demo, "_FITS", 1)
    assert main(["demo", "--output", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    written = {"report.json", "report.html"}
    pictures = {"privacy_profile.png", "accuracy.png"}
    assert {file.name for file in tmp_path.iterdir()} == written | (pictures if drawn else set())
    assert ("pip install matplotlib" in output) == (not drawn)
    assert main(["verify", str(tmp_path / "report.json"), "--quiet"]) == 0


def test_columns_of_the_demo_differ_in_adjacency_only():
    one, other = (_demo._private(1.0, name).get_params() for name in _demo._ADJACENCIES)
    assert {name for name in one if one[name] != other[name]} == {"adjacency"}


def test_exit_codes_of_the_process(path):
    done = run("verify", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("VERIFIED")
    alter(path, '"sigma": ', '"sigma": 1')
    assert run("verify", str(path)).returncode == 1
    path.write_text("{")
    done = run("verify", str(path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
