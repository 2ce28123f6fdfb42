cimport cython

cdef class VirtualClock:
    cdef dict __dict__
    cdef object __weakref__
    cdef public object _real, _time_ns
    cdef public dict _offsets_ms
    cdef public long long _written_offset_ms
    @cython.locals(offset_ms=cython.longlong, now_ns=cython.longlong)
    cpdef now_ms(self, object domain=*)
