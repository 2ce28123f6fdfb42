cimport cython
from storage.segment cimport Segment

@cython.freelist(64)
cdef class Place:
    cdef public long long last_offset, position, size
    cdef public Segment segment

cdef class ReadableLog:
    cdef public object _list, _tail
    cdef public list segments
    cdef public long long log_start_offset, log_end_offset
    cdef public bint is_closed
