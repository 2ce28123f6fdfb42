cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject *append_queues; PyObject *authorizer; PyObject *check_listeners; PyObject *client_metrics; PyObject *clock; PyObject *config; PyObject *fetch_sessions; PyObject *groups; PyObject *injection; PyObject *life; PyObject *metadata; PyObject *node_id; PyObject *peers; PyObject *persister; PyObject *quotas; PyObject *rack; PyObject *replicas; PyObject *settings; PyObject *share; PyObject *share_coordinator; PyObject *slices; PyObject *transactions; PyObject *verifier; } Slots_Node;
    """
    ctypedef class broker.node.node.Node [object Slots_Node, check_size ignore]:
        cdef object append_queues
        cdef object authorizer
        cdef object check_listeners
        cdef object client_metrics
        cdef object clock
        cdef object config
        cdef object fetch_sessions
        cdef object groups
        cdef object injection
        cdef object life
        cdef object metadata
        cdef object node_id
        cdef object peers
        cdef object persister
        cdef object quotas
        cdef object rack
        cdef object replicas
        cdef object settings
        cdef object share
        cdef object share_coordinator
        cdef object slices
        cdef object transactions
        cdef object verifier
