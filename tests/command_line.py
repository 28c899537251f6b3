"""Running commands in this process."""

import pytest

from normmatch.commands import main


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    capsys.readouterr()
    try:
        main([str(arg) for arg in args])
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    return code, *capsys.readouterr()
