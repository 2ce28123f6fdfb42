cdef class MetadataListener:
    pass
