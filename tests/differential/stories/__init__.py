"""All stories, by area. Importing this registers them."""

from tests.differential.stories import add_partitions as add_partitions
from tests.differential.stories import alter_configs as alter_configs
from tests.differential.stories import api_versions as api_versions
from tests.differential.stories import connection as connection
from tests.differential.stories import consumer_groups as consumer_groups
from tests.differential.stories import coordinators as coordinators
from tests.differential.stories import end_txn as end_txn
from tests.differential.stories import feature_level as feature_level
from tests.differential.stories import features as features
from tests.differential.stories import fetch as fetch
from tests.differential.stories import groups as groups
from tests.differential.stories import inspection as inspection
from tests.differential.stories import isolation as isolation
from tests.differential.stories import late as late
from tests.differential.stories import leaders as leaders
from tests.differential.stories import log_dirs as log_dirs
from tests.differential.stories import offsets as offsets
from tests.differential.stories import produce as produce
from tests.differential.stories import producer_state as producer_state
from tests.differential.stories import topics as topics
from tests.differential.stories import txn_offsets as txn_offsets
from tests.differential.stories import txn_produce as txn_produce
from tests.differential.stories import txn_timeout as txn_timeout
from tests.differential.stories import txn_window as txn_window
from tests.differential.stories import versions as versions
from tests.differential.stories import write_txn_markers as write_txn_markers
