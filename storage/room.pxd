from storage.config cimport LogConfig
from storage.segment cimport Segment

cdef class Room:
    cdef public Segment segment
    cdef public LogConfig config
    cdef public long long bytes, timestamp_ms, last_offset, leader_epoch
