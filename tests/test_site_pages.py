"""What the documentation says about the code and the measurements is so."""

import ast
import importlib
import json
import math
import re
import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"

_TABLE = re.compile(
    r"^\| equation \| function \(`([\w.]+)`\) \| test \(`([\w/]+)`\) \|\n\|[-|]+\|\n((?:\|.*\n)+)",
    re.MULTILINE,
)


def names_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def rows_of_mathematics():
    for package, folder, body in _TABLE.findall((DOCS / "mathematics.md").read_text()):
        file = None
        for line in body.splitlines():
            equation, functions, tests = (cell.strip() for cell in line.split("|")[1:-1])
            named = []
            for name in names_in(tests):
                *path, test = name.split("::")
                if path and path[0].endswith(".py"):
                    file, path = path[0], path[1:]
                named.append((f"{folder}/{file}", *path, test))
            yield pytest.param(package, names_in(functions), named, id=equation)


ROWS = list(rows_of_mathematics())


def test_tables_cover_all_parts():
    packages = {row.values[0].split(".")[1] for row in ROWS}
    assert packages == {
        "factorization",
        "model_selection",
        "neural_network",
        "privacy",
        "release",
    }
    assert len(ROWS) > 40


@pytest.mark.parametrize(("package", "functions", "tests"), ROWS)
def test_every_function_and_test_in_the_mathematics_exists(package, functions, tests):
    if package.endswith("neural_network"):
        pytest.importorskip("torch")
        pytest.importorskip("skorch")
    assert functions
    assert tests
    for function in functions:
        module, _, name = f"{package}.{function}".rpartition(".")
        assert callable(getattr(importlib.import_module(module), name)), function
    for file, *path, test in tests:
        body = ast.parse((ROOT / file).read_text()).body
        for name in path:
            (found,) = (x for x in body if isinstance(x, ast.ClassDef) and x.name == name)
            body = found.body
        defined = [x.name for x in body if isinstance(x, ast.FunctionDef)]
        assert defined.count(test) == 1, (file, test)


def cells(text):
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_best_strategies_of_the_page_on_correlated_noise_are_measured():
    names = runpy.run_path(DOCS / "tables.py", run_name="docs")["NAMES"]
    rows = json.loads((RESULTS / "multipliers.json").read_text())["rows"]
    text = (DOCS / "correlated.md").read_text()
    header, _, *body = cells(text[text.index("| epsilon |") :].split("\n\n")[0])
    assert len(body) == 5
    for epsilon, *row in body:
        for sampling, cell in zip(header[1:], row, strict=True):
            best = min(
                (row["rmse"], names[row["strategy"]])
                for row in rows
                if row["epsilon"] == float(epsilon) and row["sampling"] == names_in(sampling)[0]
            )
            assert cell == f"{best[0]:.2f} {best[1]}"
    least = {
        row["epsilon"]: f"{row['rmse']:.2f}"
        for row in rows
        if row["sampling"] == "min_separated" and names[row["strategy"]] == "BSR(4)"
    }
    stated = re.search(r"`BSR\(4\)` has ([\d.]+) at epsilon = 1 and ([\d.]+) at 2", text)
    assert stated.groups() == (least[1.0], least[2.0])


def test_home_page_states_measured_accuracies():
    measured = json.loads((RESULTS / "accuracy_vs_peers.json").read_text())
    text = (DOCS / "index.md").read_text()
    header, _, *body = cells(text[text.index("| | breast cancer") :].split("\n\n")[0])
    assert [row[0] for row in body] == list(measured["breast cancer"])
    for label, *row in body:
        for data, cell in zip(header[1:], row, strict=True):
            assert cell == f"{measured[data][label]['1.0']:.3f}"


def test_the_home_page_shows_the_accuracy_of_the_network():
    scores = json.loads((RESULTS / "kan_accuracy.json").read_text())["scores"]
    text = (DOCS / "index.md").read_text()
    header, _, *body = cells(text[text.index("| | MNIST |") :].split("\n\n")[0])
    data = {
        "MNIST": "mnist",
        "MNIST, 3 against 8": "mnist 3/8",
        "Adult": "adult",
        "Covertype, 2 classes": "covertype 2",
        "Covertype, 7 classes": "covertype 7",
    }
    assert header[1:] == list(data)
    methods = {"our network": "BIFR 4", "linear model": "softmax", "tanh network": "mlp"}
    assert len(body) == 3
    for title, *shown in body:
        method = methods[title.split(",")[0]]
        for name, value in zip(data.values(), shown, strict=True):
            assert value == f"{np.mean(scores[f'{name} | {method} | 2']):.3f}"


def test_page_on_the_network_states_how_sure_it_was():
    rows = cells((RESULTS / "kan_confidence.md").read_text())[2:]
    found = {(name, float(clip)): np.array(row, float) for name, e, clip, *row in rows if e == "2"}
    default, larger = (
        np.array([found[name, clip] for name in ("adult", "covertype 2", "covertype 7")])
        for clip in (0.5, 1.0)
    )
    text = " ".join((DOCS / "network.md").read_text().split())
    stated = (
        ("mean probability of", default[:, 0]),
        ("is right for", default[:, 1]),
        ("log-loss smaller by", default[:, 2] - larger[:, 2]),
        ("still too sure by", larger[:, 0] - larger[:, 1]),
    )
    for words, values in stated:
        assert f"{words} {values.min():.2f} to {values.max():.2f}" in text
    assert np.abs(default - larger)[:, 1].max() < 0.005
    images = found["mnist 3/8", 0.5] - found["mnist 3/8", 1.0]
    assert images[1] > 0  # accuracy
    assert images[2] < 0  # log-loss


def test_home_page_states_measured_speeds():
    text = " ".join((DOCS / "index.md").read_text().split())
    found = (RESULTS / "factorization_vs_jax_privacy.md").read_text()
    faster = [int(row[-1]) for row in cells(found)[2:] if row[-1] != "-"]
    assert f"{min(faster)} to {max(faster)} times faster" in text
    found = cells((RESULTS / "kan_step.md").read_text())
    ratios = [float(row[3]) for row in found if row[0] == "Opacus ghost, our basis"]
    assert len(ratios) == 4
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times faster" in text


def test_page_on_the_linear_model_states_the_measured_noise():
    measured = cells((RESULTS / "noise_against_rivals.md").read_text())
    columns = [measured[0].index(name) for name in ("epsilon", "Gaussian")]
    columns.append(measured[0].index("**ours, zero-out**"))
    columns += [measured[0].index(name) for name in ("2 x Gaussian", "**ours, replace-one**")]
    expected = [[row[i] for i in columns] for row in measured if row[0] == "1"]
    assert len(expected) == 5
    assert cells((DOCS / "logistic.md").read_text())[2:] == expected


def test_the_corollary_adds_as_many_times_as_much_noise_as_stated():
    # The calibrations of the picture, at the ends of its curves.
    pictures = runpy.run_path(DOCS / "pictures.py", run_name="docs")
    from sklearn_dpop.privacy import gaussian_noise_multiplier

    def ratio(epsilon, calibration):
        gaussian = gaussian_noise_multiplier(epsilon, pictures["DELTA"])
        return pictures["noise_multiplier"](epsilon, calibration) / gaussian

    stated = re.search(
        r"adds ([\d.]+) to ([\d.]+) times", " ".join((DOCS / "logistic.md").read_text().split())
    )
    assert f"{ratio(1.0, 'corollary'):.1f}" == stated[1]
    assert f"{ratio(0.05, 'corollary'):.1f}" == stated[2]
    assert max(ratio(e, "tight") for e in (0.05, 1.0, 8.0)) <= 1.0101


def test_quickstart_states_the_accuracy_for_ten_classes():
    digits = (RESULTS / "accuracy.md").read_text().split("**digits, 10 classes**")[1]
    without = re.search(r"logistic regression ([\d.]+)", digits)[1]
    header, _, *body = cells(digits)
    at_one = [row[header.index("ε = 1")] for row in body if row[0].startswith("tight")]
    text = " ".join((DOCS / "quickstart.md").read_text().split())
    stated = re.search(
        r"1,257 records, .* is ([\d.]+) to ([\d.]+), .* without privacy it is (\d.\d+)", text
    )
    expected = min(at_one), max(at_one), without
    assert stated.groups() == tuple(f"{float(value):.2f}" for value in expected)


def test_readme_states_the_noise_of_the_linear_model():
    noise = runpy.run_path(DOCS / "pictures.py", run_name="docs")["noise_multiplier"]
    from sklearn_dpop.privacy import gaussian_noise_multiplier

    text = " ".join((ROOT / "README.md").read_text().split())
    stated = re.search(r"is ([\d.]+) times .* for ([\d.]+) times, .* noise is ([\d.]+)\.", text)
    values = noise(1.0, "tight"), noise(1.0, "corollary"), gaussian_noise_multiplier(1.0, 1e-5)
    assert stated.groups() == tuple(f"{value:.2f}" for value in values)


def test_examples_are_named_where_the_gallery_is_linked():
    for page in DOCS.glob("*.md"):
        text = page.read_text()
        for name in re.findall(r"\(auto_examples/(\w+)\)", text):
            file = "examples/" if name == "index" else f"examples/{name}.py"
            assert file in text, (page.name, file)
            assert (ROOT / file).exists()


# --- CONTRIBUTING.md, CITATION.cff ---------------------------------------------------------------


def contributing(heading):
    """Return the Python blocks of a section."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_loss_of_the_guide_has_the_stated_constants_and_can_be_fitted(capsys):
    (code,) = contributing("How to add a loss")
    namespace = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the constants are the user's statement
        exec(code, namespace)
    assert "pseudo_huber" in capsys.readouterr().out
    loss = namespace["PseudoHuberLoss"]()
    u = np.linspace(-9.0, 11.0, 200_001)
    slope = loss.derivative(u)
    np.testing.assert_allclose(slope, np.gradient(np.sqrt(1 + (1 - u) ** 2), u), atol=1e-4)
    curvature = np.gradient(slope, u)
    change = np.gradient(curvature, u)
    constants = loss.constants
    assert 0.99 < abs(slope).max() <= constants.L1
    assert curvature.min() >= 0.0
    assert curvature.max() == pytest.approx(constants.L2, rel=1e-6)
    assert abs(change).max() == pytest.approx(constants.L3, rel=1e-4)


def test_strategy_of_the_guide_can_be_added():
    from sklearn_dpop.factorization import PrefixSum, _explicit, rmse, sensitivity

    (code,) = contributing("How to add a strategy")
    namespace = dict(vars(_explicit))
    exec(code, namespace)
    strategy = namespace["ExponentialBand"](0.5, 3)
    assert strategy.coef(5).tolist() == [1.0, 0.5, 0.25, 0.0, 0.0]
    assert float(sensitivity(strategy, 1, 8, 8)) == pytest.approx(np.sqrt(1 + 0.25 + 0.0625))
    assert np.isfinite(rmse(PrefixSum(8), strategy))


def test_batches_of_the_guide_are_fixed_and_reversed_in_every_second_epoch():
    from sklearn_dpop.privacy import Schedule

    code = next(c for c in contributing("How to add an accountant") if "_alternating" in c)
    namespace = {"np": np, "Iterator": list, "Indices": np.ndarray}
    exec("class Guide:\n" + code, namespace)
    schedule = Schedule(10, 4, 3, "cyclic")
    batches = [
        b.tolist() for b in namespace["Guide"]._alternating(schedule, np.random.default_rng(0))
    ]
    assert [len(b) for b in batches[:3]] == [4, 4, 2]
    assert sorted(i for batch in batches[:3] for i in batch) == list(range(10))
    assert batches[3:6] == batches[2::-1]
    assert batches[6:] == batches[:3]


def test_files_of_the_guide_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = [
        name
        for name in re.findall(r"`([\w/]+/[\w/.]+\.(?:py|md))`", text)
        if name != "tests/release/test_losses.py"  # to be made
    ]
    assert len(named) > 20
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "sklearn_dpop" / name).exists(), name


def test_citation_has_the_version_of_the_package():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version[1]}\n" in citation


def test_choosing_shows_the_accuracy_by_steps():
    found = json.loads((RESULTS / "steps_of_linear.json").read_text())
    page = (DOCS / "choosing.md").read_text()
    for rows in found.values():
        assert (
            "| " + " | ".join(f"{row['accuracy']:.3f}" for _, row in ordered(rows)) + " |" in page
        )


def ordered(rows):
    """Return the numbers of steps in order, and last what is not private."""
    return sorted(rows.items(), key=lambda item: float(item[0]) if item[0].isdigit() else math.inf)
