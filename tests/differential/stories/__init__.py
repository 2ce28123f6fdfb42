"""All stories, by area. Importing this registers them."""

from tests.differential.stories import api_versions as api_versions
from tests.differential.stories import connection as connection
from tests.differential.stories import coordinators as coordinators
from tests.differential.stories import fetch as fetch
from tests.differential.stories import groups as groups
from tests.differential.stories import offsets as offsets
from tests.differential.stories import produce as produce
from tests.differential.stories import producer_state as producer_state
from tests.differential.stories import topics as topics
from tests.differential.stories import transactions as transactions
from tests.differential.stories import versions as versions
