"""`python -m normmatch` is the command `normmatch`."""

from normmatch.cli import main

if __name__ == "__main__":
    main()
