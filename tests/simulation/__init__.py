from compiled.finder import use_python

use_python()  # `rare` and `watch` put functions of theirs in place of the broker's
