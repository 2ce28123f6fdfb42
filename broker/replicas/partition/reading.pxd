from storage.log cimport Log

cdef class ReadablePartition:
    cdef public object topic, leading, offline
    cdef public tuple _said
    cdef public Log log
    cdef public long long index, leader_epoch, high_watermark, _served_offset, _checked_offset
