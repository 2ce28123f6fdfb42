"""All stories (scripted requests) with several nodes, by area. The import registers them."""

from tests.differential.cluster.stories import administration as administration
from tests.differential.cluster.stories import below_min_isr as below_min_isr
from tests.differential.cluster.stories import between_nodes as between_nodes
from tests.differential.cluster.stories import elections as elections
from tests.differential.cluster.stories import eligible_leaders as eligible_leaders
from tests.differential.cluster.stories import followers as followers
from tests.differential.cluster.stories import groups as groups
from tests.differential.cluster.stories import high_watermark as high_watermark
from tests.differential.cluster.stories import in_sync as in_sync
from tests.differential.cluster.stories import leadership as leadership
from tests.differential.cluster.stories import reassignments as reassignments
from tests.differential.cluster.stories import share_groups as share_groups
from tests.differential.cluster.stories import shutdown as shutdown
from tests.differential.cluster.stories import transactions as transactions
