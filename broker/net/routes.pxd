cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *api; PyObject *decode; PyObject *decode_steps; PyObject *encode; PyObject *encode_steps; PyObject *handler; PyObject *header_tail; PyObject *version; } Slots_Route;
    """
    ctypedef class broker.net.routes.Route [object Slots_Route, check_size ignore]:
        cdef object api
        cdef object decode
        cdef object decode_steps
        cdef object encode
        cdef object encode_steps
        cdef object handler
        cdef object header_tail
        cdef object version
