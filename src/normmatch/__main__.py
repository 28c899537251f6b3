"""`python -m normmatch` is the command `normmatch`."""

from normmatch.commands import main

if __name__ == "__main__":
    main()
