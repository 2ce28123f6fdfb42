cdef extern from *:
    ctypedef class broker.transactions.effects.Prepare [object PyTupleObject, check_size ignore]:
        cdef object transition "ob_item[0]"
    ctypedef class broker.transactions.effects.Respond [object PyTupleObject, check_size ignore]:
        cdef object answer "ob_item[0]"
    ctypedef class broker.transactions.effects.WriteMarkers [object PyTupleObject, check_size ignore]:
        cdef object then "ob_item[0]"
