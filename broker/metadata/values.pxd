cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *configs; PyObject *name; PyObject *partitions; PyObject *topic_id; } Slots_Topic;
    """
    ctypedef class broker.metadata.values.Topic [object Slots_Topic, check_size ignore]:
        cdef object configs
        cdef object name
        cdef object partitions
        cdef object topic_id
