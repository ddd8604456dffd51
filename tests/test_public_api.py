from __future__ import annotations

import subprocess
import sys

import perdure


def test_the_public_names_are_there_and_loaded_when_they_are_used() -> None:
    for name in perdure.__all__:
        assert getattr(perdure, name) is not None
    assert set(perdure.__all__) <= set(dir(perdure))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(perdure, "nothing_of_that_name")


def test_importing_does_nothing_to_the_outside() -> None:
    program = "import os, sys; before = dict(os.environ); import perdure; assert os.environ == before"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
