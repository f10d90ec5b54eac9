"""The soak as a test: short in the plain suite, longer where ``SOAK_SECONDS`` says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("SOAK_SECONDS", "15"))


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize(("client", "share"), [("http", 1.0), ("httpx2", 0.5)])
def test_a_mixed_soak_is_clean(client, share):
    """Every healthy stream is exactly right, every fault ends as it may, and nothing is left of any of them."""
    command = [sys.executable, str(Path(__file__).with_name("run.py")), "--upstream-client", client]
    run = subprocess.run([*command, "--seconds", str(SECONDS * share)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
