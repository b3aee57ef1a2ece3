"""Every example and every code block of the documentation runs, and says what it should."""

import importlib
import json
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sklearn_dpop import ObjPertGDLogisticRegression
from sklearn_dpop.privacy import gaussian_delta, gaussian_noise_multiplier

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PAGES = runpy.run_path(ROOT / "docs" / "pages.py", run_name="docs")["PAGES"]


def run(*command, cwd):
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Examples are to be read: a warning in them would need an explanation.
    assert done.stderr == ""
    return done.stdout


def number_after(text, output):
    return float(re.search(re.escape(text) + r"\s*([\d.]+)", output)[1])


def check_quickstart(output):
    assert "(epsilon = 1, delta = 1e-05)-differential privacy, replace-one adjacency" in output
    assert "VERIFIED: " in output
    assert "NOT VERIFIED" not in output
    private = number_after("test accuracy at epsilon = 1:", output)
    # The majority class has 0.63; of 150 fits the worst had 0.854.
    assert private > 0.8
    assert number_after("not private:", output) > 0.95
    rows = re.findall(r"^ +([\d.]+) +(0\.\d+) +(0\.\d+)$", output, re.MULTILINE)
    assert [float(row[0]) for row in rows] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert float(rows[-1][1]) > 0.88
    assert float(rows[-1][2]) > 0.9


def check_column_transformer(output):
    assert "(epsilon = 1, delta = 1e-06)-differential privacy, replace-one adjacency" in output
    assert "n = 6000 records, d = 10 coefficients" in output
    assert "VERIFIED: " in output
    assert "NOT VERIFIED" not in output
    private = number_after("private, epsilon = 1: test accuracy", output)
    assert private > number_after("more frequent answer: test accuracy", output) + 0.1
    assert private > number_after("not private:          test accuracy", output) - 0.03


def check_grid_search(output):
    # 4 candidates and 5 folds, by counting: 4 * 5 + 1 fits, 4 * 4 + 1 of them with a record.
    assert "21 fits; every record is used in 17 of them" in output
    assert "epsilon in the report: 1.0" in output
    text = " ".join(output.split())
    stated = re.findall(r"\(epsilon = ([\d.]+), delta = ([\d.e-]+)\)-differential privacy", text)
    (careless, loose), (within, delta), (split, _) = [(float(e), float(d)) for e, d in stated]
    assert loose == 17 * 1e-5
    assert delta == 1e-5
    assert 0.98 < within <= 1.0
    assert split == 1.0  # that of the choice, on other records
    assert "declared: at most 17 fits of a record, choice of the winner (epsilon = 0.2" in text
    assert "declared: 4 fits, on other records choice of the winner (epsilon = 1" in text
    assert "verified: True" in output
    # No guarantee of this kind is better than that of as many Gaussian releases with the least
    # noise that has the pair, and composing curves beats adding by far.
    fits = re.findall(r"each (?:of 4 fits|fit): epsilon = ([\d.]+), delta = ([\d.e-]+)", text)
    (e17, d17), (e4, d4) = [(float(e), float(d)) for e, d in fits]
    for count, epsilon, delta, total, total_delta in (
        (17, 1.0, 1e-5, careless, loose),
        (17, e17, d17, within - 0.2, 1e-5),
        (4, e4, d4, 1.0, 1e-5),
    ):
        multiplier = gaussian_noise_multiplier(epsilon, delta) / math.sqrt(count)
        assert gaussian_delta(total, noise_multiplier=multiplier) < total_delta
        assert total < 0.6 * count * epsilon
    totals = re.findall(r"total epsilon +([\d.]+), test accuracy ([\d.]+)", output)
    assert [float(total) for total, _ in totals[1:]] == [1.0] * 4
    assert all(float(accuracy) > 0.8 for _, accuracy in totals[3:])


def check_verify_report(output):
    assert output.count("VERIFIED: ") == 1  # the honest one, printed in full
    assert re.findall(r"exit code: (\d)", output) == ["0", "1"]
    assert "[FAIL] guarantee.epsilon: " in output
    assert "[FAIL] delta at the stated epsilon: " in output
    assert "[FAIL] certificate.intermediates.noise_multiplier: " in output
    assert "[FAIL] warnings.expected: " in output
    assert "passes: True" in output
    assert "- the released model was computed by this mechanism" in output


def check_choose_strategy(output):
    assert "resumed: True" in output
    independent, best = re.findall(r"noise in the final model +([\d.]+)", output)
    assert float(best) < float(independent)


def check_sampling(output):
    multipliers = [float(x) for x in re.findall(r"noise multiplier +([\d.]+) ", output)]
    assert len(multipliers) == 3
    assert max(multipliers[1:]) < 0.7 * multipliers[0]  # amplified against not
    rows = re.findall(
        r"best gamma ([\d.]+), RMSE +([\d.]+) \(independent noise: ([\d.]+)\)", output
    )
    assert len(rows) == 2
    assert all(float(error) < 0.8 * float(independent) for _, error, independent in rows)
    assert number_after("certified delta(2.0) =", output) <= 10  # in 1e-06
    assert "monte carlo" in output
    assert number_after("epsilon for someone who knows the batches:", output) > 2.5


def check_epsilon_accuracy(output):
    rows = re.findall(r"^ +([\d.]+) +(0\.\d+) +(0\.\d+) +(0\.\d+)$", output, re.MULTILINE)
    assert [float(row[0]) for row in rows] == [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
    # Sixteen times the records at the smallest budget: about 0.6 against 0.87.
    assert float(rows[0][3]) > float(rows[0][1]) + 0.1
    reference = number_after("not private, 8,000 records:", output)
    assert all(reference - 0.04 < float(accuracy) < reference for accuracy in rows[-1][1:])


def check_profiles(output):
    corollary, tight, gaussian = (float(x) for x in re.findall(r"delta\(0\) = ([\d.]+)", output))
    multiplier = gaussian_noise_multiplier(1.0, 1e-6)
    assert gaussian == pytest.approx(gaussian_delta(0.0, noise_multiplier=multiplier), abs=1e-4)
    assert corollary < gaussian < tight
    totals = re.findall(r"(\d) fits: epsilon = ([\d.]+)", output)
    assert [int(fits) for fits, _ in totals] == [1, 2, 5]
    for fits, total in totals:
        # No better than as many Gaussian releases, and better than adding.
        delta = gaussian_delta(float(total), noise_multiplier=multiplier / math.sqrt(int(fits)))
        assert delta < 5.2e-6  # the total is printed with two digits
        assert float(total) < 1.0 * int(fits)
    known, *secret = (float(x) for x in re.findall(r"epsilon = ([\d.]+) at delta = 1e-5", output))
    # Ten participations without a secret, by the exact Gaussian mechanism.
    exact = gaussian_delta(known, noise_multiplier=4.0 / math.sqrt(10))
    assert exact == pytest.approx(1e-5, rel=0.05)
    assert len(secret) == 2
    assert max(secret) < 0.3 * known


def check_coefficients(output):
    # Independent noise: sums of t terms, five participations of a record.
    assert number_after("Identity (DP-SGD)         2.24", output) == pytest.approx(
        math.sqrt(5 * 201 / 2), abs=0.01
    )
    pairs = re.findall(r"drawn +([\d.]+), by formula +([\d.]+)", output)
    assert len(pairs) == 2
    # 200 sums of 4000 coordinates: the first sums of a coordinate are shared by the later ones.
    assert all(float(a) == pytest.approx(float(b), rel=0.05) for a, b in pairs)


def check_kan_quickstart(output):
    assert "(epsilon = 2, delta = 1e-05)-differential privacy, zero-out adjacency" in output
    private = number_after("private network, epsilon = 2:", output)
    # The more frequent class has half; of 20 fits the worst had .941, and without noise .970.
    assert private > 0.9
    assert number_after("network, not private:", output) > 0.95
    assert number_after("private linear model:", output) < 0.6
    rows = re.findall(r"^ +([\d.]+) +(0\.\d+)$", output, re.MULTILINE)
    assert [float(row[0]) for row in rows] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]


def check_kan_edges(output):
    # The more frequent class has half, the true risk .744.
    without, private = (
        number_after(f"  {name}:", output) for name in ("not private", "epsilon = 1")
    )
    assert 0.65 < private < 0.78
    assert 0.7 < without < 0.78
    rows = re.findall(r"^(\w+) +(0\.\d\d) +(0\.\d\d)$", output, re.MULTILINE)
    assert [row[0] for row in rows] == ["age", "bmi", "sleep", "pressure", "height"]
    for column in np.array(rows)[:, 1:].astype(float).T:
        assert column.sum() == pytest.approx(1.0, abs=0.03)
        assert column[-1] < column.max()  # height, which has no effect
    claimed = re.findall(r"says (0\.\d+), is right in (0\.\d+)", output)
    assert len(claimed) == 2
    assert all(float(said) > float(right) for said, right in claimed)


def check_kan_resume(output):
    assert re.findall(r"checkpoint is there: (\w+)", output) == ["True", "False"]
    assert "permissions: 0o600" in output
    assert "refused: made with other records" in output
    assert "the same network to the last bit: True" in output
    assert re.findall(r"epoch (\d) of 3: epsilon 2$", output, re.MULTILINE) == ["1", "2", "3"]
    assert "refused: partial_fit: all of the epochs=3 are done" in output
    assert re.search(r"ended after \d+ of 40 epochs\nepsilon of the report: 2$", output.strip())


CHECKS = {
    "choose_strategy": check_choose_strategy,
    "kan_resume": check_kan_resume,
    "plot_coefficients": check_coefficients,
    "plot_column_transformer": check_column_transformer,
    "plot_epsilon_accuracy": check_epsilon_accuracy,
    "plot_grid_search": check_grid_search,
    "plot_kan_edges": check_kan_edges,
    "plot_kan_quickstart": check_kan_quickstart,
    "plot_profiles": check_profiles,
    "plot_quickstart": check_quickstart,
    "plot_sampling": check_sampling,
    "plot_verify_report": check_verify_report,
}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example_runs(script, tmp_path):
    if "kan_" in script.stem:
        pytest.importorskip("skorch")
    output = run(script, cwd=tmp_path)
    if script.stem in CHECKS:
        CHECKS[script.stem](output)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_pages_are_refreshed_by_name(monkeypatch, tmp_path, capsys):
    pages = runpy.run_path(ROOT / "docs" / "pages.py", run_name="docs")
    main = pages["main"]
    monkeypatch.setitem(main.__globals__, "__file__", str(tmp_path / "pages.py"))
    stale = "```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n"
    for name in ("index.md", "network.md"):
        (tmp_path / name).write_text(stale)
    main(["network.md"])
    assert (tmp_path / "network.md").read_text() == stale.replace("3", "2")
    for argument, code in (("--help", 0), ("no.md", 2)):
        with pytest.raises(SystemExit) as stop:
            main([argument])
        assert stop.value.code == code
    assert (tmp_path / "index.md").read_text() == stale
    assert "must be one of ../README.md, index.md" in capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES)
def test_page_shows_what_its_code_prints(page, tmp_path):
    code = (
        "import pathlib, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import pages\n"
        "sys.stdout.write(pages.rerun(pathlib.Path(sys.argv[2]).read_text()))\n"
    )
    path = (ROOT / "docs" / page).resolve()
    if "import KANClassifierDP" in path.read_text():
        pytest.importorskip("skorch")
    fresh = run("-c", code, ROOT / "docs", path, cwd=tmp_path)
    assert fresh == path.read_text(), "run: python docs/pages.py"


@pytest.mark.parametrize(
    "module",
    [
        "datasets",
        "exceptions",
        "factorization",
        "linear_model",
        "neural_network",
        "preprocessing",
        "privacy",
        "release",
    ],
)
def test_api_page_lists_every_public_name(module):
    names = importlib.import_module(f"sklearn_dpop.{module}").__all__
    listed = re.findall(rf"^   {module}\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(names)


def keys_of(data):
    for key, value in data.items():
        yield key
        if isinstance(value, dict):
            yield from keys_of(value)


@pytest.mark.parametrize("calibration", ["corollary", "tight"])
def test_page_on_the_report_explains_every_key_and_line(calibration):
    X = np.random.default_rng(0).uniform(-0.3, 0.3, size=(200, 3))
    model = ObjPertGDLogisticRegression(calibration=calibration, classes=[0, 1])
    report = model.fit(X, X[:, 0] > 0).privacy_report_
    page = (ROOT / "docs" / "report.md").read_text()
    explained = {name.split(".")[-1] for name in re.findall(r"`([^`\n]+)`", page)}
    data = json.loads(report.to_json())
    del data["certificate"]["contributions"], data["versions"]  # keyed by words
    assert set(keys_of(data)) - explained == set()
    labels = {line[:13].strip() for line in str(report).splitlines() if line[0].islower()}
    assert labels >= {"mechanism", "theorem", "data", "parameters", "epsilon", "delta"}
    assert labels - explained == set()
    parts = {part for terms in report.stated["contributions"].values() for part in terms}
    words = {part.split(", ")[0].lower() for part in parts}
    assert {word for word in words if word not in page.lower()} == set()
