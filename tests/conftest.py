"""What every test may use."""

pytest_plugins = ["tests.support.broker"]
