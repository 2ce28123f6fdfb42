cimport cython
from storage.files cimport AppendFile

cdef class Segment:
    cdef public object directory, _offset_index, _time_index, _transaction_index, _unsynced_names, _first_timestamp_ms
    cdef public AppendFile _log
    cdef public long long base_offset, created_ms, jitter_ms, _size, _bytes_since_index_entry, _max_timestamp_ms, _max_timestamp_offset
    cdef public bint used, has_aborted, _index_tail_is_full
    @cython.locals(log=AppendFile)
    cpdef long long size_now(self) except? -1
    @cython.locals(log=AppendFile, position=cython.longlong)
    cpdef long long append(self, object chunks, long long length, long long last_offset, long long max_timestamp_ms, long long index_interval_bytes) except? -1
    cpdef note_batch(self, long long position, long long length, long long last_offset, long long max_timestamp_ms, long long index_interval_bytes)
