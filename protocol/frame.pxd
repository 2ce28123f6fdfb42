cdef extern from *:
    ctypedef class protocol.frame.RequestHeader [object PyTupleObject, check_size ignore]:
        cdef object api_key "ob_item[0]"
        cdef object api_version "ob_item[1]"
        cdef object correlation_id "ob_item[2]"
        cdef object client_id "ob_item[3]"
        cdef object body_offset "ob_item[4]"
