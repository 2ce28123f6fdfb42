cimport cython
from protocol.batch cimport RecordBatch
from storage.config cimport LogConfig

@cython.locals(codec=cython.longlong, count=cython.longlong, size=cython.longlong, attributes=cython.longlong)
cpdef bint passes_as_sent(RecordBatch batch, LogConfig config, long long now_ms, object limits=*) except? -1
