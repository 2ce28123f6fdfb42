"""The fixtures ``spark`` and ``kafka``. A conftest.py in the top folder of your tests is the place for this line."""

pytest_plugins = ["odradek.spark.testing.fixtures"]
