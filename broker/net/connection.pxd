cimport cython
from broker.net.routes cimport Route
from broker.node.context cimport RequestContext
from protocol.frame cimport RequestHeader

cdef class Connection:
    cdef object __weakref__
    cdef public object _shared, listener, connection_id, host, port, peer, address, last_active_tick, _transport, _frame, _pending, client, _unsent, authentication
    cdef public bytes _kept
    cdef public long long _holds, _answers_bytes
    cdef public bint _reading, _muted
    cdef public dict _contexts
    cdef public list _answers
    @cython.locals(position=Py_ssize_t, end=Py_ssize_t, served=cython.int, size=cython.longlong, start=Py_ssize_t)
    cpdef _cut(self, object data)
    @cython.locals(header=RequestHeader, route=Route, context=RequestContext)
    cpdef _serve(self, object frame)
    cpdef _decoded(self, RequestHeader header, Route route, object frame, object context, object request)
    cpdef _handle(self, Route route, object correlation_id, object request, object context, object call)
    cpdef _answer(self, Route route, object correlation_id, object outcome, object call=*)
    @cython.locals(size=cython.longlong)
    cpdef _send(self, Route route, object correlation_id, object call, object chunks)
