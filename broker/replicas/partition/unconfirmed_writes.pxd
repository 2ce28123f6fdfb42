cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *_flush; PyObject *_injection; PyObject *_log; PyObject *_node_id; PyObject *_place; PyObject *_purgatory; PyObject *held; } Slots_UnconfirmedWrites;
    """
    ctypedef class broker.replicas.partition.unconfirmed_writes.UnconfirmedWrites [object Slots_UnconfirmedWrites, check_size ignore]:
        cdef object _flush
        cdef object _injection
        cdef object _log
        cdef object _node_id
        cdef object _place
        cdef object _purgatory
        cdef dict held
