cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *happenings; PyObject *links; PyObject *losses; PyObject *points; PyObject *transaction_watcher; } Slots_FaultInjection;
    """
    ctypedef class broker.injection.points.FaultInjection [object Slots_FaultInjection, check_size ignore]:
        cdef object happenings
        cdef object links
        cdef object losses
        cdef object points
        cdef object transaction_watcher
