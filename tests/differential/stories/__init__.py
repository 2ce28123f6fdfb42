"""All stories, by area. Importing this registers them."""

from . import api_versions as api_versions
from . import connection as connection
from . import produce as produce
from . import producer_state as producer_state
from . import topics as topics
from . import versions as versions
