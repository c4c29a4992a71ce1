"""The list of benchmarks."""

from __future__ import annotations

import argparse
import importlib
import pkgutil

import benchmarks


def main() -> None:
    """Print the name of each benchmark, and what it measures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Lists the benchmarks; python -m benchmarks.NAME runs one, and takes --help.",
    )
    parser.parse_args()
    names = [
        module.name
        for module in pkgutil.iter_modules(benchmarks.__path__)
        if not module.ispkg and module.name != "__main__"
    ]
    width = max(map(len, names))
    for name in names:
        text = importlib.import_module(f"benchmarks.{name}").__doc__ or ""
        print(f"{name:{width}}  {' '.join(text.partition(chr(10) * 2)[0].split())}")


if __name__ == "__main__":
    main()
