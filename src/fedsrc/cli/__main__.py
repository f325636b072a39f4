"""`python -m fedsrc.cli` is the command `fedsrc`."""

from fedsrc.cli.main import main

if __name__ == "__main__":
    main()
