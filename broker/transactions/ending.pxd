cdef class Ending:
    cdef public object _log, _markers, _clock
