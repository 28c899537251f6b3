"""What to compute on, and in which precision."""

import warnings

import torch

from normmatch.checks import check_word, shown
from normmatch.errors import ConfigError

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def find_device(name: str) -> torch.device:
    """The device of a name; "auto" is cuda where there is one, else cpu."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        if not isinstance(name, str | torch.device):
            raise TypeError("torch would take a number for a GPU")
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # which "meta" cannot
    except Exception as error:  # torch has many: it was built without cuda, knows no such device, cannot reach it
        usable = ["auto", "cpu"]
        usable += ["cuda"] if torch.cuda.is_available() else []
        usable += ["mps"] if torch.backends.mps.is_available() else []
        expected = ", ".join(usable[:-1]) + f" or {usable[-1]}"
        raise ConfigError(f"The device {shown(name)} cannot be used here; expected {expected}.") from error
    return device


def can_compile(device: torch.device) -> bool:
    """Whether torch's compiler works here, tried on a trifle: it needs a C++ compiler, and on a GPU triton."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8, device=device))
    except Exception:  # of the compiler, of the linker, of triton
        return False
    return True


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The arithmetic that a name stands for on a device.

    auto is bfloat16 where the device has instructions for it; without them float16 on a GPU, float32 elsewhere. A half
    precision that a CPU would only imitate, slowly, is replaced by float32 with a warning.
    """
    name, native = check_word(name, "precision", ("auto", *PRECISIONS), ConfigError), _has_bfloat16(device)
    if name == "auto":
        return torch.bfloat16 if native else torch.float16 if device.type == "cuda" else torch.float32
    dtype = PRECISIONS[name]
    if (dtype == torch.bfloat16 and not native) or (dtype == torch.float16 and device.type == "cpu"):
        better = torch.float16 if device.type == "cuda" else torch.float32
        warnings.warn(f"{device} has no {name} arithmetic; {str(better)[6:]} is used instead", stacklevel=3)
        return better
    return dtype


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        found = (getattr(torch.cpu, f"_is_{name}_supported", bool) for name in ("avx512_bf16", "amx_tile"))
        return any(ask() for ask in found)
    return False
