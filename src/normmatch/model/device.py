"""What to compute on."""

import torch

from normmatch.errors import ConfigError


def find_device(name: str) -> torch.device:
    """The device of a name; "auto" is cuda where there is one, else cpu."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch was built without cuda
        usable = ["auto", "cpu"]
        usable += ["cuda"] if torch.cuda.is_available() else []
        usable += ["mps"] if torch.backends.mps.is_available() else []
        expected = ", ".join(usable[:-1]) + f" or {usable[-1]}"
        raise ConfigError(f"The device {name!r} cannot be used here; expected {expected}.") from error
    return device


def can_compile(device: torch.device) -> bool:
    """Whether torch's compiler works here, tried on a trifle: it needs a C++ compiler, and on a GPU triton."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8, device=device))
    except Exception:  # of the compiler, of the linker, of triton
        return False
    return True
