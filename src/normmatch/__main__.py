"""`python -m normmatch` is the command `normmatch`."""

import os
import signal

# numpy's matrices here are small, and its threads would wait for the network's: `locate` takes twice as long with them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    """Run the command line. Until it is imported an interrupt ends the program at once, without Python's trace."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from normmatch.commands import main as run

    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
