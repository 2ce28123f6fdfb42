cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *api_key; PyObject *api_version; PyObject *client; PyObject *client_id; PyObject *connection_id; PyObject *listener; PyObject *node; PyObject *peer; PyObject *principal; } Slots_RequestContext;
    """
    ctypedef class broker.node.context.RequestContext [object Slots_RequestContext, check_size ignore]:
        cdef object api_key
        cdef object api_version
        cdef object client
        cdef object client_id
        cdef object connection_id
        cdef object listener
        cdef object node
        cdef object peer
        cdef object principal
