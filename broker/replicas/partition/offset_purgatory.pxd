cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *_arrivals; PyObject *pending; } Slots_OffsetPurgatory;
    """
    ctypedef class broker.replicas.partition.offset_purgatory.OffsetPurgatory [object Slots_OffsetPurgatory, check_size ignore]:
        cdef object _arrivals
        cdef list pending
