"""`python -m localspec`: the console script, where no script is installed."""

from localspec.cli.main import run

if __name__ == "__main__":
    run()
