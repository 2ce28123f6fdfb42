"""All stories of several nodes, by area. Importing this registers them."""

from tests.differential.cluster.stories import administration as administration
from tests.differential.cluster.stories import leadership as leadership
