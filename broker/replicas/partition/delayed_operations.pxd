from broker.replicas.partition.offset_purgatory cimport OffsetPurgatory
cdef extern from *:
    """
    typedef struct { PyObject_HEAD Slots_OffsetPurgatory *commits; PyObject *watchers; } Slots_DelayedOperations;
    """
    ctypedef class broker.replicas.partition.delayed_operations.DelayedOperations [object Slots_DelayedOperations, check_size ignore]:
        cdef OffsetPurgatory commits
        cdef dict watchers
