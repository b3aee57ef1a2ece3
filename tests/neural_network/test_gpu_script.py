"""The script that checks a GPU runs to its end where there is none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("skorch")

ROOT = Path(__file__).parents[2]


def test_all_sections_pass_on_the_cpu(tmp_path):
    command = [ROOT / "benchmarks" / "gpu.py", "--device", "cpu", "--output", tmp_path]
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sections = json.loads((tmp_path / "gpu.json").read_text())["sections"]
    assert len(sections) == 6
    assert not any("error" in section for section in sections.values())
    assert sections["rows of noise"]["result"]["ring and regeneration equal"]
    assert "| n = 20000, p = 64 |" in (tmp_path / "gpu.md").read_text()
