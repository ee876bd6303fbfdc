"""`python -m pisces` is `pisces`."""

from pisces.cli.main import main

if __name__ == "__main__":
    main()
