"""The tables of docs/factorization.md are what the package computes."""

import re
from pathlib import Path

import pytest

from sklearn_dpop.factorization import (
    BIFR,
    BISR,
    BSR,
    BandMF,
    Identity,
    Momentum,
    PrefixSum,
    best_gamma,
    rmse,
)

PAGE = (Path(__file__).parents[2] / "docs" / "factorization.md").read_text()


def table_row(name, occurrence):
    rows = re.findall(rf"^\| {re.escape(name)} \|.*\|$", PAGE, flags=re.MULTILINE)
    return [float(x) for x in rows[occurrence].split("|")[3:-1]]


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("Identity (DP-SGD)", Identity()),
        ("BISR, p=16", BISR(16)),
        ("BSR, p=64", BSR(64)),
        ("BandMF, p=4", BandMF(4)),
    ],
)
@pytest.mark.parametrize("occurrence", [0, 1])
def test_memory_tables(name, strategy, occurrence):
    workload = (PrefixSum(2000), Momentum(2000, 0.9))[occurrence]
    found = [rmse(workload, strategy, k, 2000 // k) for k in (1, 5, 20)]
    assert table_row(name, occurrence) == pytest.approx(found, abs=0.0051)


def test_bifr_rows_use_the_best_gamma():
    found = [
        rmse(PrefixSum(2000), BIFR(best_gamma(2000, 4, k, 2000 // k), 4), k, 2000 // k)
        for k in (1, 5, 20)
    ]
    assert table_row("BIFR, p=4, best gamma", 0) == pytest.approx(found, abs=0.0051)
