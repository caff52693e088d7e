"""`python -m splitjax`, and the command that pip installs."""

from splitjax import cli

if __name__ == "__main__":
  cli.run()
