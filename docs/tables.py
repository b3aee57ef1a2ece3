"""Write the measured tables and the picture of docs/sampling.md from the benchmarks' results.

python docs/tables.py
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "sampling.md"
PICTURE = ROOT / "docs" / "images" / "amplified_gamma.png"
NAMES = {
    "Identity()": "Identity",
    "LambdaCGD(lambda_=0.5)": "LambdaCGD(0.5)",
    "LambdaCGD(lambda_=0.9)": "LambdaCGD(0.9)",
    "BIFR(gamma=0.8, bandwidth=4, momentum=0.0, weight_decay=1.0)": "BIFR(0.8, 4)",
    "BSR(bandwidth=4, momentum=0.0, weight_decay=1.0)": "BSR(4)",
}


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def by_strategy(key, digits):
    rows = json.loads((RESULTS / "multipliers.json").read_text())["rows"]
    epsilons = sorted({row["epsilon"] for row in rows})
    found = {}
    for row in rows:
        scheme = row["sampling"] + (f", b = {row['separation']}" if row["separation"] else "")
        cells = found.setdefault((NAMES[row["strategy"]], scheme), {})
        mark = "\\*" if row["method"] == "monte carlo" else ""
        cells[row["epsilon"]] = f"{row[key]:.{digits}f}{mark}"
    body = [
        [
            name,
            f"`{scheme}`" if "," not in scheme else scheme,
            *(cells.get(e, "") for e in epsilons),
        ]
        for (name, scheme), cells in sorted(
            found.items(), key=lambda item: list(NAMES.values()).index(item[0][0])
        )
    ]
    text = table(["strategy", "sampling", *(f"ε={e:g}" for e in epsilons)], body)
    return text + "\n\n\\* Monte Carlo bound; the others are deterministic."


def gamma_table():
    data = json.loads((RESULTS / "amplified_gamma.json").read_text())
    cells = {(cell["bandwidth"], cell["epsilon"]): cell for cell in data["best"]}
    bandwidths = sorted({p for p, _ in cells})
    epsilons = sorted({e for _, e in cells})
    rows = []
    for p in bandwidths:
        row = [f"p = {p}" if p < max(bandwidths) else "free (p = n)"]
        for epsilon in epsilons:
            cell = cells.get((p, epsilon))
            row.append(
                f"{cell['gamma']:.2f} ({cell['rmse'] / cell['dp_sgd']:.2f})" if cell else ""
            )
        rows.append(row)
    return table(["bandwidth", *(f"ε={e:g}" for e in epsilons)], rows)


def picture():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    data = json.loads((RESULTS / "amplified_gamma.json").read_text())
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for family, style in (("BIFR", "-"), ("BFR", "--")):
        for epsilon, color in ((1.0, "#1f5f99"), (8.0, "#b3541e")):
            points = [
                (c["gamma"], c["rmse"])
                for c in data["free_bandwidth"]
                if c["family"] == family and c["epsilon"] == epsilon
            ]
            if points:
                left.plot(
                    *zip(*points, strict=True),
                    style,
                    color=color,
                    label=f"{family}, epsilon = {epsilon:g}",
                )
    left.set(xlabel="gamma", ylabel="amplified RMSE", yscale="log", title="Free bandwidth")
    left.legend(frameon=False, fontsize=8)
    for p in sorted({cell["bandwidth"] for cell in data["best"]}):
        points = sorted((c["epsilon"], c["gamma"]) for c in data["best"] if c["bandwidth"] == p)
        right.plot(*zip(*points, strict=True), "o-", label=f"p = {p}")
    right.axhline(0.5, color="0.6", lw=0.8)
    right.set(xlabel="epsilon", ylabel="best gamma", xscale="log", ylim=(0, 1), title="Best gamma")
    right.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    right.minorticks_off()
    right.legend(frameon=False, fontsize=8)
    fig.savefig(PICTURE, dpi=160)


def main():
    text = PAGE.read_text()
    for name, content in (
        ("multipliers", by_strategy("multiplier", 3)),
        ("rmse", by_strategy("rmse", 2)),
        ("gamma", gamma_table()),
    ):
        # From the comment up to the next paragraph that is no table and no footnote.
        text = re.sub(
            rf"(<!-- {name}: \S+ -->\n)(\n(?:\|.*\n)+)?(\n\\\*.*\n)?",
            lambda match, content=content: f"{match[1]}\n{content}\n",
            text,
        )
    PAGE.write_text(text)
    picture()


if __name__ == "__main__":
    main()
