"""`python -m smoothlink` is `smoothlink`."""

from smoothlink.cli import main

if __name__ == "__main__":
    main()
