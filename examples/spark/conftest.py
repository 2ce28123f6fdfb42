"""Imports the fixtures ``spark`` and ``kafka``. Put this line into a conftest.py in the top folder of your tests."""

pytest_plugins = ["odradek.spark.testing.fixtures"]
