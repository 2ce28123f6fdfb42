from compiled.finder import use_python

use_python()  # `rare` and `watch` replace functions of the broker, which must not be compiled for that
